// What every module uses of the libraries.
import { h, render, Fragment } from "./vendor/preact.js";
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./vendor/hooks.js";
import htm from "./vendor/htm.js";

export const html = htm.bind(h);
export { Fragment, h, render, useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState };

/** A value that several parts of the page show.
 * @template T
 * @param {T} value
 */
export function store(value) {
  const listeners = new Set();
  return {
    get: () => value,
    /** @param {T} next */
    set(next) {
      value = next;
      for (const listener of [...listeners]) listener();
    },
    /** @param {() => void} listener */
    listen(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}

/** The value of a store; the view is drawn again when it changes.
 * @template T
 * @param {{get: () => T, listen: (listener: () => void) => () => void}} source
 * @returns {T}
 */
export function useStore(source) {
  const [, redraw] = useState(0);
  useEffect(() => source.listen(() => redraw((count) => count + 1)), [source]);
  return source.get();
}

// Requests to REST, with the caller's token.
import { store, useEffect, useRef, useState } from "./lib.js";

const BASE = new URL("api/v1/", document.baseURI.split("#")[0]);
const KEPT = "queuectl.token";
const SLOWEST = 60_000;

/** The state of the ledger that the last answer came from; null before the first.
 * @typedef {{sequence: number, ageSeconds: number, stale: boolean, observed: boolean,
 *   controller: {seconds: number, lastSeen: string} | null, at: number}} Freshness */
/** @type {ReturnType<typeof store<Freshness | null>>} */
export const freshness = store(/** @type {Freshness | null} */ (null));
/** The time by the clock of the ledger, in milliseconds: that of the browser may differ. */
export function now() {
  const seen = freshness.get();
  if (!seen?.controller) return Date.now();
  return Date.parse(seen.controller.lastSeen) + 1000 * seen.controller.seconds + Date.now() - seen.at;
}

/** That many hours before a time, as REST takes times.
 * @param {number} hours
 * @param {string | null} [asOf] null: now */
export const hoursAgo = (hours, asOf = null) => new Date((asOf ? Date.parse(asOf) : now()) - hours * 3_600_000).toISOString().replace(/\.\d+Z$/, "Z");

/** What a person must do before REST answers: null, or the problem with status 401. */
export const refused = store(/** @type {Problem | null} */ (null));

/** An error answer, or none: status 0. */
export class Problem extends Error {
  /**
   * @param {number} status
   * @param {string} detail
   * @param {{title?: string, audiences?: string[], retryAfter?: number}} [more]
   */
  constructor(status, detail, more = {}) {
    super(detail);
    this.status = status;
    this.title = more.title ?? "";
    this.audiences = more.audiences ?? null;
    this.retryAfter = more.retryAfter ?? 0;
  }
}

/** Only this tab has it, until it is closed. */
export const token = {
  get: () => sessionStorage.getItem(KEPT),
  /** @param {string | null} text */
  set(text) {
    if (text) sessionStorage.setItem(KEPT, text);
    else sessionStorage.removeItem(KEPT);
    refused.set(null);
  },
};

/** A path of segments, each escaped.
 * @param {...string} segments */
export const path = (...segments) => segments.map(encodeURIComponent).join("/");

/** @typedef {Record<string, string | number | null | undefined>} Parameters */

/** The document at a path. Throws Problem.
 * @param {string} where
 * @param {Parameters} [params]
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>} */
export function ask(where, params = {}, signal) {
  const url = new URL(where, BASE);
  for (const [name, value] of Object.entries(params))
    if (value !== null && value !== undefined && value !== "") url.searchParams.set(name, String(value));
  return exchange(url, { signal }, !params.asOf);
}

/** The answer to a body. Throws Problem.
 * @param {string} where
 * @param {string} body
 * @param {Record<string, string>} headers its Content-Type, and others
 * @returns {Promise<any>} */
export const send = (where, body, headers) => exchange(new URL(where, BASE), { method: "POST", body, headers }, true);

/**
 * @param {URL} url
 * @param {RequestInit} request
 * @param {boolean} ofNow is the answer of the newest state?
 */
async function exchange(url, request, ofNow) {
  const held = token.get();
  const headers = { ...request.headers, ...(held ? { Authorization: `Bearer ${held}` } : {}) };
  /** @type {Response} */
  let answer;
  try {
    answer = await fetch(url, { ...request, headers, cache: "no-store" });
  } catch (error) {
    if (request.signal?.aborted) throw error;
    throw new Problem(0, "the server does not answer");
  }
  // The caller has signed in meanwhile: this is no answer to the new token.
  if (answer.status === 401 && held !== token.get()) return exchange(url, request, ofNow);
  const body = await answer.json().catch(() => null);
  if (!answer.ok) throw problem(answer, body);
  if (body === null) throw new Problem(answer.status, "the answer is not JSON: is this address queuectl's REST server?");
  if (ofNow) freshness.set({ ...pick(body), at: Date.now() });
  if (refused.get()) refused.set(null);
  return body;
}

/** @param {any} body */
function pick({ sequence, ageSeconds, controller = null, stale = false, observed = false }) {
  return { sequence, ageSeconds, controller, stale, observed };
}

/**
 * @param {Response} answer
 * @param {any} body
 */
function problem(answer, body) {
  const found = new Problem(answer.status, body?.detail ?? `status ${answer.status}`, {
    title: body?.title,
    audiences: body?.audiences,
    retryAfter: Number(answer.headers.get("Retry-After")) || 0,
  });
  if (answer.status === 401) refused.set(found);
  return found;
}

/** @typedef {{data: any, problem: Problem | null, loading: boolean, reload: () => void}} Asked */

/** The document at a path; asked again every `every` milliseconds while the page is visible. `where` null: nothing.
 * After an error that passes, the last document stays, with the problem beside it.
 * @param {string | null} where
 * @param {Parameters} [params]
 * @param {{every?: number}} [how]
 * @returns {Asked} */
export function useRest(where, params = {}, how = {}) {
  const key = where === null ? "" : `${where}?${JSON.stringify(params)}`;
  const [seen, setSeen] = useState({ key, data: null, problem: /** @type {Problem | null} */ (null) });
  const [turn, setTurn] = useState(0);
  const latest = useRef(seen);
  latest.current = seen;
  useEffect(() => {
    if (where === null) return;
    const abort = new AbortController();
    let timer = 0;
    const look = async () => {
      const begun = performance.now();
      let rest = how.every ?? 0;
      try {
        const data = await ask(where, params, abort.signal);
        setSeen({ key, data, problem: null });
        rest = Math.min(SLOWEST, Math.max(rest, 5 * (performance.now() - begun)));
      } catch (error) {
        if (abort.signal.aborted) return;
        const found = error instanceof Problem ? error : new Problem(0, String(error));
        const keep = latest.current.key === key && [0, 429, 503].includes(found.status);
        setSeen({ key, data: keep ? latest.current.data : null, problem: found });
        rest = Math.max(rest, 1000 * found.retryAfter, 2000);
        if ([400, 401, 403, 404].includes(found.status)) return;
      }
      if (how.every) timer = window.setTimeout(whenVisible, rest);
    };
    const whenVisible = () => {
      if (!document.hidden) return void look();
      document.addEventListener("visibilitychange", whenVisible, { once: true });
    };
    look();
    const stop = refused.listen(() => refused.get() === null && latest.current.problem?.status === 401 && setTurn((n) => n + 1));
    return () => {
      stop();
      abort.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", whenVisible);
    };
  }, [key, turn, how.every]);
  const own = seen.key === key ? seen : { data: null, problem: null };
  return { data: own.data, problem: own.problem, loading: own.data === null && own.problem === null, reload: () => setTurn((n) => n + 1) };
}

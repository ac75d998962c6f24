// Search by name: ClusterQueues, LocalQueues, and workloads; those that are over come last.
import { html, useEffect, useRef, useState } from "./lib.js";
import { ask } from "./rest.js";
import { to, toWorkload } from "./route.js";

const PAUSE = 200;
const EACH = 6;

/** @typedef {{kind: string, title: string, note: string, href: string}} Hit */

/** @param {string} text
 * @param {string | null} asOf
 * @param {AbortSignal} signal
 * @returns {Promise<Hit[]>} */
async function look(text, asOf, signal) {
  const name = text.slice(text.lastIndexOf("/") + 1).toLowerCase();
  const list = (where, params) => ask(where, { asOf, ...params }, signal).then((page) => page.items, () => []);
  const [queues, locals, workloads, over] = await Promise.all([
    list("clusterqueues", { limit: 1000 }),
    list("localqueues", { limit: 1000 }),
    list("workloads", { name, limit: EACH }),
    list("workloads", { name, phase: "Finished", limit: EACH }),
  ]);
  const has = (each) => each.name.includes(name);
  return [
    ...queues.filter(has).slice(0, EACH).map((one) => ({ kind: "ClusterQueue", title: one.name, note: `${one.pending} pending`, href: to(["clusterqueues", one.name]) })),
    ...locals.filter((one) => has(one) || one.namespace.includes(name)).slice(0, EACH).map((one) => ({
      kind: "LocalQueue", title: `${one.namespace}/${one.name}`, note: `${one.pending} pending`,
      href: to(["localqueues", one.namespace, one.name]),
    })),
    ...[...workloads, ...over].map((one) => ({ kind: one.kind, title: `${one.namespace}/${one.name}`, note: one.end?.outcome ?? one.phase, href: String(toWorkload(one)) })),
  ];
}

export function Search({ asOf }) {
  const [text, setText] = useState("");
  const [hits, setHits] = useState(/** @type {Hit[] | null} */ (null));
  const [at, setAt] = useState(0);
  const field = useRef(/** @type {HTMLInputElement | null} */ (null));
  useEffect(() => {
    const open = (event) => {
      if (event.key !== "/" || event.target.closest("input, select, textarea, dialog")) return;
      event.preventDefault();
      field.current?.focus();
    };
    addEventListener("keydown", open);
    return () => removeEventListener("keydown", open);
  }, []);
  useEffect(() => {
    setHits(null);
    setAt(0);
    if (text.trim().length < 2) return;
    const abort = new AbortController();
    const timer = setTimeout(() => look(text.trim(), asOf, abort.signal).then((found) => abort.signal.aborted || setHits(found)), PAUSE);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [text, asOf]);
  const leave = () => (setText(""), setHits(null));
  const key = (event) => {
    if (event.key === "Escape") leave();
    if (!hits?.length) return;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      setAt((at + (event.key === "ArrowDown" ? 1 : hits.length - 1)) % hits.length);
    }
    if (event.key === "Enter") {
      location.hash = hits[at].href;
      leave();
    }
  };
  const open = hits !== null;
  return html`<div class="search" role="search">
    <input ref=${field} type="search" placeholder="Search queues and workloads" aria-label="Search queues and workloads" value=${text}
      role="combobox" aria-expanded=${open} aria-controls="hits" aria-autocomplete="list" aria-activedescendant=${open && hits.length ? `hit-${at}` : undefined}
      onInput=${(event) => setText(event.target.value)} onKeyDown=${key} onBlur=${() => setTimeout(() => setHits(null), PAUSE)} />
    <kbd aria-hidden="true">/</kbd>
    <ul id="hits" role="listbox" aria-label="Found" hidden=${!open}>
      ${hits?.map((hit, place) => html`<li id="hit-${place}" role="option" aria-selected=${place === at} onMouseEnter=${() => setAt(place)} onMouseDown=${() => ((location.hash = hit.href), leave())}>
        <span class="soft kind">${hit.kind}</span><span class="name">${hit.title}</span><span class="soft">${hit.note}</span></li>`)}
    </ul>
    <p class="hidden" role="status">${open ? (hits.length ? `${hits.length} found` : "Nothing found") : ""}</p>
    ${open && !hits.length && html`<p class="none" aria-hidden="true">No queue has “${text.trim()}” in its name, and no workload that waits, runs or ended lately</p>`}
  </div>`;
}

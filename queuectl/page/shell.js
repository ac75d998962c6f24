// What is above every view: search, the time that the page is of, how new it is, the theme.
import { duration, grouped, timestamp } from "./format.js";
import { html, store, useEffect, useRef, useState, useStore } from "./lib.js";
import { freshness, now as ledgerNow, token } from "./rest.js";
import { change } from "./route.js";
import { Search } from "./search.js";

const SILENT_SECONDS = 30;
const STALE_SECONDS = 30;
const DAY = 1440;
const THEMES = [["auto", "System"], ["light", "Light"], ["dark", "Dark"]];

export const theme = store(localStorage.getItem("queuectl.theme") ?? "auto");
const wear = () => (document.documentElement.dataset.theme = theme.get());
theme.listen(wear);
wear();

export function ThemeChoice() {
  const now = useStore(theme);
  const choose = (event) => {
    theme.set(event.target.value);
    localStorage.setItem("queuectl.theme", event.target.value);
  };
  return html`<label class="theme"><span class="hidden">Theme</span>
    <select value=${now} onChange=${choose}>${THEMES.map(([value, text]) => html`<option value=${value}>${text}</option>`)}</select></label>`;
}

/** Drawn again every second. */
function useClock() {
  const [, tick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => tick((n) => n + 1), 1000);
    return () => clearInterval(timer);
  }, []);
  return Date.now();
}

export const TopBar = ({ asOf }) => html`<header class="top">
  <${Search} asOf=${asOf} />
  <${Fresh} asOf=${asOf} />
  <${AsOf} asOf=${asOf} />
  ${token.get() && html`<button class="quiet" onClick=${() => (token.set(null), location.reload())}>Sign out</button>`}
</header>`;

function Fresh({ asOf }) {
  const now = useClock();
  const seen = useStore(freshness);
  if (asOf || seen === null) return null;
  const age = seen.ageSeconds + (now - seen.at) / 1000;
  const tone = seen.stale || age > STALE_SECONDS ? "bad" : (seen.controller?.seconds ?? 0) > SILENT_SECONDS ? "wait" : "ok";
  return html`<p class="fresh" title=${`Age of this state: decision ${grouped(seen.sequence)} is the last one in it`}><i class=${tone}></i>
    <span class="soft">${duration(age)} ago</span></p>`;
}

/** The time that lists and objects are of: now, or an earlier one. */
function AsOf({ asOf }) {
  const minutes = asOf ? Math.max(-DAY, Math.min(0, Math.round((Date.parse(asOf) - ledgerNow()) / 60_000))) : 0;
  const [moved, setMoved] = useState(/** @type {number | null} */ (null));
  useEffect(() => setMoved(null), [asOf]);
  const box = useRef(/** @type {HTMLDetailsElement | null} */ (null));
  useEffect(() => {
    const close = (/** @type {Event} */ event) => {
      if (!box.current?.open || box.current.contains(/** @type {Node} */ (event.target))) return;
      box.current.open = false;
    };
    addEventListener("pointerdown", close);
    addEventListener("focusin", close);
    return () => (removeEventListener("pointerdown", close), removeEventListener("focusin", close));
  }, []);
  const at = moved ?? minutes;
  const slide = (event) => {
    setMoved(null);
    const back = Number(event.target.value);
    change({ asOf: back === 0 ? null : stamp(new Date(ledgerNow() + back * 60_000)) });
  };
  const type = (event) => event.target.value && change({ asOf: stamp(new Date(event.target.value)) });
  return html`<details class="asof" ref=${box}><summary aria-label="As of, the time that is shown">${asOf ? timestamp(asOf) : "Now"}</summary>
    <div class="pop">
      <label>As of <output>${at === 0 ? "now" : `${duration(-60 * at)} ago`}</output>
        <input type="range" min=${-DAY} max="0" step="1" value=${at} onInput=${(event) => setMoved(Number(event.target.value))} onChange=${slide} /></label>
      <label>Time <input type="datetime-local" step="1" value=${asOf ? local(new Date(asOf)) : ""} onChange=${type} /></label>
      <button disabled=${!asOf} onClick=${() => change({ asOf: null })}>Back to now</button>
    </div>
  </details>`;
}

/** @param {Date} at */
const stamp = (at) => at.toISOString().replace(/\.\d+Z$/, "Z");
/** @param {Date} at */
const local = (at) => timestamp(at).replace(" ", "T");

/** What a reader must know before the numbers. */
export function Notices({ asOf }) {
  const now = useClock();
  const seen = useStore(freshness);
  const lines = [];
  if (asOf) lines.push(["info", html`As of <time datetime=${asOf}>${timestamp(asOf)}</time>: the state after all decisions up to then. <button class="link" onClick=${() => change({ asOf: null })}>Back to now</button>`]);
  else if (seen) {
    const age = seen.ageSeconds + (now - seen.at) / 1000;
    const silent = seen.controller?.seconds ?? 0;
    if (seen.stale) lines.push(["bad", `Stale: REST cannot read the ledger. This is the state of ${duration(age)} ago.`]);
    else if (now - seen.at > 1000 * STALE_SECONDS) lines.push(["bad", `The server does not answer. This is the state of ${duration(age)} ago.`]);
    else if (silent > SILENT_SECONDS) lines.push(["wait", `No controller has committed for ${duration(silent)}: nothing is decided.`]);
    if (seen.observed) lines.push(["info", "These are decisions of an observer: none of them was carried out."]);
  }
  return html`<div class="notices" role="status" aria-live="polite">${lines.map(([tone, text]) => html`<p class="notice ${tone}">${text}</p>`)}</div>`;
}

// Decisions as they are committed. REST gives each exactly once, in sequence.
import { clock, counted, grouped } from "../format.js";
import { decisionText } from "../facts.js";
import { html, useEffect, useRef, useState } from "../lib.js";
import { Empty, Failure, Heading, Loading, Panel, Table, VerdictBadge, WorkloadName } from "../parts.js";
import { ask, Problem, refused } from "../rest.js";
import { Filters } from "./filters.js";

const WAIT = 25;
const PAUSE = 1500;
const MOST = 300;
const PAGE = 100;

/** The newest decisions first, at most `most`, and more as they come.
 * @param {Record<string, string | null>} filter
 * @param {number} most
 * @param {boolean} [paused]
 * @returns {{rows: any[] | null, problem: Problem | null}} */
export function useDecisions(filter, most, paused = false) {
  const key = JSON.stringify(filter);
  const [seen, setSeen] = useState({ key, rows: /** @type {any[] | null} */ (null), problem: /** @type {Problem | null} */ (null) });
  const [turn, setTurn] = useState(0);
  const place = useRef({ key: "", after: /** @type {number | null} */ (null), rows: /** @type {any[]} */ ([]) });
  useEffect(() => {
    if (paused) return;
    if (place.current.key !== key) place.current = { key, after: null, rows: [] };
    const abort = new AbortController();
    let timer = 0;
    const look = async () => {
      const at = place.current;
      let pause = PAUSE;
      try {
        const rows = await following(at, filter, Math.min(most, PAGE), abort.signal);
        at.rows = [...rows.reverse(), ...at.rows].slice(0, most);
        setSeen({ key, rows: at.rows, problem: null });
      } catch (error) {
        if (abort.signal.aborted) return;
        const problem = error instanceof Problem ? error : new Problem(0, String(error));
        setSeen((last) => ({ key, rows: last.key === key ? last.rows : null, problem }));
        if ([400, 401, 403, 404].includes(problem.status)) return;
        pause = Math.max(2 * PAUSE, 1000 * problem.retryAfter);
      }
      timer = window.setTimeout(whenVisible, pause);
    };
    const whenVisible = () => {
      if (!document.hidden) return void look();
      document.addEventListener("visibilitychange", whenVisible, { once: true });
    };
    look();
    const stop = refused.listen(() => refused.get() === null && setTurn((n) => n + 1));
    return () => {
      stop();
      abort.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", whenVisible);
    };
  }, [key, paused, turn]);
  return seen.key === key ? seen : { rows: null, problem: null };
}

/** What was decided after `at.after`, oldest first; the newest page the first time. Advances `at`. */
async function following(at, filter, limit, signal) {
  const first = at.after === null;
  const page = await ask("decisions", { ...filter, limit, after: at.after, wait: first ? null : WAIT }, signal);
  // With `next` there are more than fit: the next request begins after the last one of this page.
  const last = page.items[page.items.length - 1]?.sequence;
  at.after = page.next && last !== undefined ? last : page.next ? at.after : page.sequence;
  return page.items;
}

export function DecisionList({ told, most, brief }) {
  if (told.rows === null) return told.problem ? html`<${Failure} problem=${told.problem} />` : html`<${Loading} rows=${6} />`;
  if (!told.rows.length) return html`<${Empty}>Nothing was decided yet.<//>`;
  if (brief)
    return html`<ol class="feed">${told.rows.slice(0, most).map((row) => html`<li key=${row.sequence}>
      <span class="soft number">${clock(row.time)}</span><${VerdictBadge} verdict=${row.verdict} /><span class="what"><${About} row=${row} /> <span class="soft">${decisionText(row)}</span></span></li>`)}</ol>`;
  return html`<${Table} label="Decisions" columns=${[["Sequence", "number wide"], ["Time", ""], ["Decision", ""], ["Of", ""], ["Attempt", "number wide"], ["Why", "grow"]]}>
    ${told.rows.map((row) => html`<tr key=${row.sequence}>
      <td class="number wide soft">${grouped(row.sequence)}</td><td class="time">${clock(row.time)}</td><td><${VerdictBadge} verdict=${row.verdict} /></td>
      <td><${About} row=${row} /></td><td class="number wide soft">${row.attempt ?? "–"}</td><td class="grow text">${decisionText(row)}</td></tr>`)}
  <//>`;
}

/** The workload of a decision, or the object that it is about. */
function About({ row }) {
  if (row.name) return html`<${WorkloadName} of=${row} />`;
  const { kind, namespace, name } = row.details ?? {};
  return html`<span>${[kind, namespace, name].filter(Boolean).join("/") || "–"}</span>`;
}

export function Decisions({ params }) {
  const [paused, setPaused] = useState(false);
  const filter = { namespace: params.get("namespace"), queue: params.get("queue") };
  const told = useDecisions(filter, MOST, paused);
  return html`<${Heading} title="Decisions" />
    <${Filters} fields=${["namespace", "queue"]} params=${params} />
    <${Panel} title=${paused ? "Paused" : "Live"} note=${told.rows ? `newest first, ${counted(told.rows.length, "decision")}, at most ${MOST}` : ""}
      aside=${html`<button aria-pressed=${paused} onClick=${() => setPaused(!paused)}>${paused ? "Continue" : "Pause"}</button>`}>
      ${told.rows && told.problem && html`<${Failure} problem=${told.problem} />`}
      <${DecisionList} told=${told} />
    <//>`;
}

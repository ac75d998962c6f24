// Use of a ClusterQueue, or of all in a cohort, over time: from the lending statement in equal steps.
import { amount, between, devicesFirst, timestamp, unit } from "../format.js";
import { html, useEffect, useMemo, useRef, useState } from "../lib.js";
import { Asked, Choice, Empty, Panel, Table } from "../parts.js";
import { hoursAgo, path, useRest } from "../rest.js";
import { change } from "../route.js";

const HOURS = { "1h": 1, "6h": 6, "24h": 24, "7d": 168 };
const STEPS = 48;
const STEPS_OF_COHORT = 24;
const EVERY = 60_000;
const LINES = [
  { field: "used", label: "Used", tone: "used", fill: 22 }, { field: "guaranteed", label: "Guaranteed", tone: "soft", dash: [4, 4] },
  { field: "borrowed", label: "Borrowed", tone: "borrowed", fill: 22 }, { field: "lent", label: "Lent", tone: "lent" },
];

export function UseOverTime({ name, params, asOf }) {
  const range = params.get("range") in HOURS ? params.get("range") : "6h";
  const since = useMemo(() => hoursAgo(HOURS[range], asOf), [range, name, asOf]);
  const asked = useRest(path("clusterqueues", name, "share"), { since, asOf, steps: STEPS }, { every: asOf ? 0 : EVERY });
  const aside = html`<${Choice} label="Time" values=${Object.keys(HOURS).map((each) => [each, each])} value=${range} onChange=${(each) => change({ range: each }, { replace: true })} />`;
  return html`<${Panel} title="Use over time" aside=${aside}><${Asked} of=${asked} rows=${5}>${(share) => html`<${Cells} share=${share} params=${params} />`}<//><//>`;
}

/** Of all ClusterQueues of a cohort that the caller may read. Nothing for callers that may not read the cohort.
 * `hours`: up to now, or to `asOf`; `cell`: flavor and resource with a space between. */
export function UseOfCohort({ name, hours, cell, asOf }) {
  const since = useMemo(() => hoursAgo(hours, asOf), [hours, name, asOf]);
  const asked = useRest(path("cohorts", name, "share"), { since, asOf, steps: STEPS_OF_COHORT });
  if (asked.problem?.status === 404) return null;
  return html`<${Panel} title="Use over time" note="of the ClusterQueues that you may read"><${Asked} of=${asked} rows=${5}>${(share) => html`<${Points} points=${share.statement.steps.map((step) => pointOf(step, cell))} resource=${cell.split(" ")[1]} lines=${LINES} />`}<//><//>`;
}

function Cells({ share, params }) {
  const steps = share.statement?.steps ?? [];
  const cells = [...new Set(steps.flatMap((step) => step.accounts.filter((one) => one.guaranteed || one.used).map((one) => `${one.flavor} ${one.resource}`)))];
  cells.sort(devicesFirst);
  if (!cells.length) return html`<${Empty}>Nothing was used in this time, and no quota was in force.<//>`;
  const cell = cells.includes(params.get("cell")) ? params.get("cell") : cells[0];
  const resource = cell.split(" ")[1];
  const points = steps.map((step) => pointOf(step, cell));
  return html`<${CellChoice} cells=${cells} cell=${cell} /><${Points} points=${points} resource=${resource} lines=${LINES} />`;
}

/** Each cell: flavor and resource with a space between. */
export const CellChoice = ({ cells, cell }) => cells.length > 1 && html`<label class="field">Flavor and resource <select value=${cell} onChange=${(event) => change({ cell: event.target.value }, { replace: true })}>
  ${cells.map((each) => html`<option value=${each} selected=${each === cell}>${each.replace(" ", " · ")}</option>`)}</select></label>`;

/** Means of steps as a chart and as a table. `lines`: as of `draw`. */
export function Points({ points, resource, lines, label = "Use over time" }) {
  return html`<${Chart} points=${points} resource=${resource} lines=${lines} />
    <details class="alternative"><summary>As a table</summary>
      <${Table} label=${label} columns=${[["From", ""], ...lines.map((line) => [line.label, "number"])]}>
        ${points.map((point) => html`<tr><td>${timestamp(point.since)}</td>${lines.map(({ field }) => html`<td class="number">${amount(resource, rounded(point[field]))}</td>`)}</tr>`)}
      <//></details>`;
}

const rounded = (value) => (value === null ? null : Math.round(10 * value) / 10);

/** The mean of one step: resource-hours by hours, of all ClusterQueues together. */
function pointOf(step, cell) {
  const length = between(step.since, step.until) / 3600;
  const found = step.accounts.filter((one) => `${one.flavor} ${one.resource}` === cell);
  const mean = (field) => (length > 0 ? found.reduce((sum, one) => sum + one[field], 0) / length : 0);
  return { since: step.since, until: step.until, used: mean("used"), guaranteed: mean("guaranteed"), borrowed: mean("borrowed"), lent: mean("lent") };
}

/** The library is loaded with the first chart. */
function Chart({ points, resource, lines }) {
  const place = useRef(/** @type {HTMLElement | null} */ (null));
  const [failed, setFailed] = useState(false);
  useEffect(() => {
    let end = () => {};
    let gone = false;
    import("../chart.js").then(
      (module) => gone || !place.current || (end = module.draw(place.current, points, resource, lines)),
      () => setFailed(true),
    );
    return () => ((gone = true), end());
  }, [points, resource, lines]);
  const top = points.reduce((most, point) => Math.max(most, point[lines[0].field]), 0);
  const words = `${unit(resource)} in ${points.length} steps: mean ${lines[0].label.toLowerCase()} at most ${amount(resource, rounded(top))}; the table below has all numbers`;
  return html`<div class="chart" role="img" aria-label=${words} ref=${place}>${failed && html`<p class="soft">The chart could not be loaded.</p>`}</div>
    <ul class="legend keys" aria-hidden="true">${lines.map(({ label, tone, fill }) => html`<li><i class=${fill ? tone : `line ${tone}`}></i>${label.toLowerCase()}</li>`)}</ul>`;
}

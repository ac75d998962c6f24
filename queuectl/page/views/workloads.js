// Workloads, a page at a time.
import { amounts, between, duration, total } from "../format.js";
import { html } from "../lib.js";
import { Asked, Empty, Heading, Pager, Panel, PhaseBadge, QueueLink, ReasonBadge, Table, usePages, withoutCode, WorkloadName } from "../parts.js";
import { now, useRest } from "../rest.js";
import { Filters } from "./filters.js";

const EVERY = 4000;
const PAGE = 100;
const PHASES = [["", "Not over"], ["Pending", "Pending"], ["Admitted", "Admitted"], ["Evicting", "Evicting"], ["Finished", "Finished"], ["Deleted", "Deleted"]];
const FIELDS = ["namespace", "clusterqueue", "name", "queue", "kind", "submitter", "reason", "labelSelector"];

/** A page of workloads as a table. `line`: with positions in the pending queue. `brief`: all are pending. `starts`: forecasts by UID.
 * @param {{items: any[], label: string, line?: boolean, brief?: boolean, starts?: Map<string, any> | null, asOf: string | null}} props */
export function WorkloadTable({ items, label, line, brief, starts, asOf }) {
  const then = new Date(asOf ?? now());
  const columns = [...(line ? [["Position", "number"]] : []), ["Workload", ""], ...(brief ? [] : [["Phase", ""]]), ...(line ? [] : [["ClusterQueue", ""]]), ...(brief ? [] : [["Priority", "number wide"]]), [line || brief ? "Waits for" : "Why, or what it holds", "grow"], ...(starts ? [["May start", "number"]] : []), ["Age", "number"]];
  return html`<${Table} cards label=${label} columns=${columns}>
    ${items.map((one) => html`<tr key=${one.uid}>
      ${line && html`<td class="number">${one.position ?? "–"}</td>`}
      <td><${WorkloadName} of=${one} /></td>
      ${!brief && html`<td><${PhaseBadge} phase=${one.phase} end=${one.end} /></td>`}
      ${!line && html`<td><${QueueLink} name=${one.admission?.clusterQueue ?? one.clusterQueue} /></td>`}
      ${!brief && html`<td class="number wide soft">${one.priority}</td>`}
      <td class="grow text">${brief ? html`<span class="two-lines"><${What} of=${one} /></span>` : html`<${What} of=${one} />`}</td>
      ${starts && html`<td class="number"><${Start} of=${starts.get(one.uid)} /></td>`}
      <td class="number soft">${duration(between(one.createdAt, then))}</td></tr>`)}
  <//>`;
}

/** The median of a forecast, with its interval. */
function Start({ of }) {
  if (!of) return html`<span class="faint">–</span>`;
  if (of.unknown) return html`<span class="soft" title=${of.unknown}>unknown</span>`;
  const late = `> ${duration(of.afterSeconds ?? 0)}`;
  const text = (/** @type {number | null} */ seconds) => (seconds === null ? late : duration(seconds));
  return html`<b>${text(of.medianSeconds)}</b> <span class="soft">${text(of.lowSeconds)} to ${text(of.highSeconds)}</span>`;
}

function What({ of }) {
  if (of.reason && of.phase !== "Admitted") return html`<${ReasonBadge} reason=${of.reason} /> <span class="soft">${withoutCode(of.reason)}</span>`;
  if (of.admission) return html`${amounts(total(of.admission.podSets))} <span class="soft">${of.podsReady === null ? "" : `${of.podsReady} of ${of.pods} pods ready`}</span>`;
  if (of.end?.attempts.length) return html`${amounts(of.requests)} <span class="soft">for ${duration(of.end.heldSeconds)}</span>`;
  return html`<span class="soft">–</span>`;
}

export function Workloads({ params, asOf }) {
  const filter = Object.fromEntries([...FIELDS, "phase"].map((name) => [name, params.get(name)]));
  return html`<${Heading} title="Workloads" />
    <${Filters} fields=${[["phase", PHASES], ...FIELDS.slice(0, 3)]} more=${FIELDS.slice(3)} params=${params} />
    <${WorkloadPages} filter=${filter} title=${filter.phase || "Not over"} empty="No workload that you may read passes these filters." asOf=${asOf} />`;
}

/** The workloads that pass a filter, as parameters of REST.
 * @param {{filter: Record<string, string | null>, title: string, empty: string, asOf: string | null}} props */
export function WorkloadPages({ filter, title, empty, asOf }) {
  const pages = usePages(JSON.stringify([filter, asOf]));
  const asked = useRest("workloads", { ...filter, asOf, limit: PAGE, next: pages.next }, { every: asOf ? 0 : EVERY });
  return html`<${Panel} title=${title} note=${filter.phase === "Finished" || filter.phase === "Deleted" ? "newest first" : "in the order of first observation"}>
    <${Asked} of=${asked} rows=${8}>${(page) => html`
      ${page.items.length ? html`<${WorkloadTable} items=${page.items} label="Workloads" asOf=${asOf} />` : html`<${Empty}>${empty}<//>`}
      <${Pager} pages=${pages} next=${page.next} count=${page.items.length} noun="workload" />`}<//>
  <//>`;
}

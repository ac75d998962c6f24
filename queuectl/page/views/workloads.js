// Workloads, a page at a time.
import { Actions, ofWorkloads } from "../actions.js";
import { amount, amounts, between, counted, duration, grouped, isDevice, total } from "../format.js";
import { html, useState } from "../lib.js";
import { Asked, Empty, Heading, Pager, Panel, PhaseBadge, QueueLink, ReasonBadge, Table, usePages, withoutCode, WorkloadName } from "../parts.js";
import { now, useRest } from "../rest.js";
import { change, to } from "../route.js";
import { Filters } from "./filters.js";

const EVERY = 4000;
const PAGE = 100;
const PHASES = [["", "Not over"], ["Pending", "Pending"], ["Admitted", "Admitted"], ["Evicting", "Evicting"], ["Finished", "Finished"], ["Deleted", "Deleted"]];
const FIELDS = ["namespace", "clusterqueue", "name", "queue", "kind", "submitter", "reason", "labelSelector"];
const ORDERS = [["", "Oldest first"], ["newest", "Newest first"], ["devices", "Most GPUs"], ["priority", "Highest priority"], ["name", "Name"], ["submitter", "User"]];
const OVER = ["Finished", "Deleted"];
/** A filter with more values than this is a field to type in. */
const MOST_CHOICES = 200;

/** A page of workloads as a table. `line`: with positions in the pending queue. `brief`: all are pending. `starts`: forecasts by UID.
 * `sort`: see Table. `selection`: {uids, toggle} where rows can be selected.
 * @param {{items: any[], label: string, line?: boolean, brief?: boolean, starts?: Map<string, any> | null, asOf: string | null, sort?: any, selection?: any}} props */
export function WorkloadTable({ items, label, line, brief, starts, asOf, sort, selection }) {
  const then = new Date(asOf ?? now());
  const columns = [...(selection ? [[html`<span class="hidden">Selected</span>`, "mark"]] : []), ...(line ? [["Position", "number"]] : []), ["Workload", "", "name"], ...(brief ? [] : [["Phase", ""]]), ...(line ? [] : [["ClusterQueue", ""]]), ...(brief ? [] : [["User", "", "submitter"], ["GPUs", "number", "devices"], ["Priority", "number wide", "priority"]]), [line || brief ? "Waits for" : "Why, or what it holds", "grow"], ...(starts ? [["May start", "number"]] : []), ["Age", "number", "newest"]];
  return html`<${Table} cards label=${label} columns=${columns} sort=${sort}>
    ${items.map((one) => html`<tr key=${one.uid}>
      ${selection && html`<td class="mark"><input type="checkbox" aria-label=${`Select ${one.kind} ${one.namespace}/${one.name}`} checked=${selection.uids.has(one.uid)} onChange=${() => selection.toggle([one])} /></td>`}
      ${line && html`<td class="number">${one.position ?? "–"}</td>`}
      <td><${WorkloadName} of=${one} /></td>
      ${!brief && html`<td><${PhaseBadge} phase=${one.phase} end=${one.end} /></td>`}
      ${!line && html`<td><${QueueLink} name=${one.admission?.clusterQueue ?? one.clusterQueue} /></td>`}
      ${!brief && html`<td class="user">${one.submitter ? html`<a href=${to(["workloads"], { submitter: one.submitter })} title=${one.submitter}>${shortUser(one.submitter)}</a>` : html`<span class="faint">–</span>`}</td>
        <td class="number" data-label="GPUs" title=${amounts(one.requests)}>${gpus(one)}</td><td class="number wide soft">${one.priority}</td>`}
      <td class="grow text">${brief ? html`<span class="two-lines"><${What} of=${one} /></span>` : html`<${What} of=${one} />`}</td>
      ${starts && html`<td class="number"><${Start} of=${starts.get(one.uid)} /></td>`}
      <td class="number soft" data-label="Age">${duration(between(one.createdAt, then))}</td></tr>`)}
  <//>`;
}

/** A service account without the prefix that all have. */
const shortUser = (name) => name.replace("system:serviceaccount:", "");

/** Devices of all kinds that it requests. */
function gpus(of) {
  const count = Object.entries(of.requests).reduce((sum, [name, value]) => sum + (isDevice(name) ? value : 0), 0);
  return count ? amount("", count) : html`<span class="faint">–</span>`;
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
  const queues = useRest("localqueues", { limit: 1000, asOf }).data?.items ?? [];
  const over = OVER.includes(params.get("phase"));
  const filter = Object.fromEntries([...FIELDS, "phase", ...(over ? [] : ["order"])].map((name) => [name, params.get(name)]));
  const [space, clusterQueue, queue] = ["namespace", "clusterqueue", "queue"].map((name) => withChoices(name, over ? [] : queues, params));
  const mine = params.get("submitter") === "@me";
  return html`<${Heading} title="Workloads" />
    <${Filters} fields=${[["phase", PHASES], space, clusterQueue, queue, "name", ...(over ? [] : [["order", ORDERS]])]} more=${["kind", "submitter", "reason", "labelSelector"]} params=${params}>
      <label class="check"><input type="checkbox" checked=${mine} onChange=${() => change({ submitter: mine ? null : "@me" })} /> Mine</label>
    <//>
    <${WorkloadPages} filter=${filter} title=${filter.phase || "Not over"} empty="No workload that you may read passes these filters." asOf=${asOf} />`;
}

/** A filter with its values in LocalQueues that pass the other filters, and how many workloads are pending or admitted there.
 * @param {string} field
 * @param {any[]} queues
 * @param {URLSearchParams} params
 * @returns {import("./filters.js").Field} */
function withChoices(field, queues, params) {
  const value = (of, name) => ({ namespace: of.namespace, clusterqueue: of.clusterQueue, queue: of.name })[name];
  const passing = queues.filter((one) => ["namespace", "clusterqueue", "queue"].every((name) => name === field || !params.get(name) || params.get(name) === value(one, name)));
  const chosen = params.get(field);
  const counts = new Map(chosen ? [[chosen, 0]] : []);
  for (const one of passing) counts.set(value(one, field), (counts.get(value(one, field)) ?? 0) + one.pending + one.admitted);
  if (!queues.length || counts.size > MOST_CHOICES) return field;
  return [field, [["", "All"], ...[...counts].sort().map(([name, count]) => [name, `${name} (${grouped(count)})`])]];
}

/** The workloads that pass a filter, as parameters of REST.
 * @param {{filter: Record<string, string | null>, title: string, empty: string, asOf: string | null}} props */
export function WorkloadPages({ filter, title, empty, asOf }) {
  const pages = usePages(JSON.stringify([filter, asOf]));
  const asked = useRest("workloads", { ...filter, asOf, limit: PAGE, next: pages.next }, { every: asOf ? 0 : EVERY });
  const [uids, setUids] = useState(/** @type {Set<string>} */ (new Set()));
  const over = OVER.includes(filter.phase ?? "");
  const order = filter.order ?? "";
  const sort = over || !("order" in filter) ? null : { order, by: (next) => change({ order: next === order ? null : next }), descending: ["devices", "priority"] };
  const toggle = (/** @type {any[]} */ items) => {
    const all = items.every((one) => uids.has(one.uid));
    setUids(new Set([...uids, ...items.map((one) => one.uid)].filter((uid) => !all || !items.some((one) => one.uid === uid))));
  };
  return html`<${Panel} title=${title} note=${over ? "newest first" : ORDERS.find(([value]) => value === order)?.[1].toLowerCase()}>
    <${Asked} of=${asked} rows=${8}>${(page) => html`
      ${!over && !asOf && page.items.length > 0 && html`<${Selected} items=${page.items} uids=${uids} toggle=${toggle} done=${() => (setUids(new Set()), asked.reload())} />`}
      ${page.items.length ? html`<${WorkloadTable} items=${page.items} label="Workloads" asOf=${asOf} sort=${sort} selection=${!over && !asOf && { uids, toggle }} />` : html`<${Empty}>${empty}<//>`}
      <${Pager} pages=${pages} next=${page.next} count=${page.items.length} noun="workload" />`}<//>
  <//>`;
}

/** What is selected on this page, and its changes. */
function Selected({ items, uids, toggle, done }) {
  const selected = items.filter((one) => uids.has(one.uid));
  return html`<div class="selected">
    <label class="check"><input type="checkbox" checked=${selected.length === items.length} onChange=${() => toggle(items)} /> ${selected.length ? `${counted(selected.length, "workload")} selected` : "Select all on this page"}</label>
    ${selected.length > 0 && html`<${Actions} label="Changes of the selected workloads" ...${ofWorkloads(selected)} done=${done} />`}
  </div>`;
}

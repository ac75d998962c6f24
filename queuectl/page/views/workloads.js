// Workloads, a page at a time.
import { Actions, ofWorkloads } from "../actions.js";
import { amount, amounts, between, counted, deviceTime, duration, grouped, isDevice, total } from "../format.js";
import { html, useState } from "../lib.js";
import { Asked, Empty, Heading, Pager, Panel, PhaseBadge, QueueLink, ReasonBadge, Table, usePages, withoutCode, WorkloadName } from "../parts.js";
import { now, useRest } from "../rest.js";
import { change, to } from "../route.js";
import { Filters } from "./filters.js";

const EVERY = 4000;
const COUNTED_EVERY = 15_000;
const PAGE = 100;
const PHASES = [["", "Unfinished"], ["Pending", "Pending"], ["Admitted", "Admitted"], ["Evicting", "Evicting"], ["Finished", "Finished"], ["Deleted", "Deleted"]];
const FIELDS = ["namespace", "clusterqueue", "name", "queue", "kind", "submitter", "reason", "labelSelector"];
const ORDERS = [["", "Oldest first"], ["newest", "Newest first"], ["devices", "Most GPUs"], ["priority", "Highest priority"], ["name", "Name"], ["submitter", "User"]];
const OVER = ["Finished", "Deleted"];

/** A page of workloads as a table. `line`: with positions in the pending queue. `brief`: all are pending. `starts`: forecasts by UID.
 * `sort`: see Table. `selection`: {uids, toggle} where rows can be selected.
 * @param {{items: any[], label: string, line?: boolean, brief?: boolean, starts?: Map<string, any> | null, asOf: string | null, sort?: any, selection?: any}} props */
export function WorkloadTable({ items, label, line, brief, starts, asOf, sort, selection }) {
  const then = new Date(asOf ?? now());
  const over = items.some((one) => OVER.includes(one.phase));
  const columns = [...(selection ? [[html`<span class="hidden">Selected</span>`, "mark"]] : []), ...(line ? [["Position", "number"]] : []), ["Workload", "", "name"], ...(brief ? [] : [["Phase", ""]]), ...(line ? [] : [["ClusterQueue", ""]]), ...(brief ? [] : [["User", "", "submitter"], ["GPUs", "number", "devices"], ["Priority", "number wide", "priority"]]), [over ? "Held" : line || brief ? "Waits for" : "Why, or what it holds", "grow"], ...(starts ? [["May start", "number"]] : []), over ? ["Ended", "number"] : ["Age", "number", "newest"]];
  return html`<${Table} label=${label} columns=${columns} sort=${sort}>
    ${items.map((one) => html`<tr key=${one.uid}>
      ${selection && html`<td class="mark"><input type="checkbox" aria-label=${`Select ${one.kind} ${one.namespace}/${one.name}`} checked=${selection.uids.has(one.uid)} onChange=${() => selection.toggle([one])} /></td>`}
      ${line && html`<td class="number">${one.reason?.family === "never" ? "–" : (one.position ?? "–")}</td>`}
      <td><${WorkloadName} of=${one} /></td>
      ${!brief && html`<td><${PhaseBadge} phase=${one.phase} end=${one.end} /></td>`}
      ${!line && html`<td><${QueueLink} name=${one.admission?.clusterQueue ?? one.clusterQueue} /></td>`}
      ${!brief && html`<td class="user">${one.submitter ? html`<a href=${to(["workloads"], { submitter: one.submitter })} title=${one.submitter}>${shortUser(one.submitter)}</a>` : html`<span class="faint">–</span>`}</td>
        <td class="number" title=${`${amounts(one.requests)} in ${counted(one.pods, "pod")}`}>${gpus(one)}</td><td class="number wide soft">${one.priority}</td>`}
      <td class="grow text">${brief ? html`<span class="two-lines"><${What} of=${one} /></span>` : html`<${What} of=${one} />`}</td>
      ${starts && html`<td class="number"><${Start} of=${starts.get(one.uid)} /></td>`}
      <td class="number soft">${over ? (one.end ? `${duration(between(one.end.endedAt, then))} ago` : "–") : duration(between(one.createdAt, then))}</td></tr>`)}
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
  if (of.reason) return html`<${ReasonBadge} reason=${of.reason} /> <span class="soft">${withoutCode(of.reason)}</span>`;
  if (of.admission) return html`${amounts(total(of.admission.podSets))} <span class="soft">${of.podsReady === null ? counted(of.pods, "pod") : `${of.podsReady} of ${of.pods} pods ready`}</span>`;
  if (of.end?.attempts.length) return html`${amounts(of.requests)} <span class="soft">${[`for ${duration(of.end.heldSeconds)}`, deviceTime(of.end.resourceSeconds)].filter(Boolean).join(", ")}</span>`;
  return html`<span class="soft">–</span>`;
}

export function Workloads({ params, asOf }) {
  const over = OVER.includes(params.get("phase"));
  const chosen = Object.fromEntries(FIELDS.map((name) => [name, params.get(name)]));
  const counts = useRest("workloadcounts", { ...chosen, phase: over ? null : params.get("phase"), asOf }, { every: asOf ? 0 : COUNTED_EVERY }).data;
  const filter = { ...chosen, phase: params.get("phase"), ...(over ? {} : { order: params.get("order") }) };
  const choices = (name) => (over ? name : withCounts(name, counts, chosen[name]));
  const mine = params.get("submitter") === "@me";
  return html`<${Heading} title="Workloads" />
    <${Filters} fields=${[phases(counts), ...["namespace", "clusterqueue", "queue"].map(choices), "name", ...(over ? [] : [["order", ORDERS]])]} more=${[...["kind", "submitter", "reason"].map(choices), "labelSelector"]} params=${params}>
      <label class="check"><input type="checkbox" checked=${mine} onChange=${() => change({ submitter: mine ? null : "@me" })} /> Mine</label>
    <//>
    <${WorkloadPages} filter=${filter} title=${filter.phase || "Unfinished"} whole=${over ? undefined : counts?.workloads} empty="No workload that you may read passes these filters." asOf=${asOf} />`;
}

const valuesOf = (counts, name) => counts?.items.find((one) => one.filter === name);

/** A filter with its values, and how many workloads each would leave.
 * @param {string} name
 * @param {any} counts the answer of REST, once it is there
 * @param {string | null} value the chosen one
 * @returns {import("./filters.js").Field} */
function withCounts(name, counts, value) {
  const found = valuesOf(counts, name);
  if (!counts || found?.more) return name;
  const values = (found?.values ?? []).map((one) => [one.value, `${one.value} (${grouped(one.workloads)})`]);
  if (value && !values.some(([known]) => known === value)) values.push([value, value]);
  return [name, [["", "All"], ...values.sort(([one], [other]) => (one < other ? -1 : 1))]];
}

/** @returns {import("./filters.js").Field} */
function phases(counts) {
  const known = new Map((valuesOf(counts, "phase")?.values ?? []).map((one) => [one.value, one.workloads]));
  return ["phase", PHASES.map(([value, text]) => [value, known.has(value) ? `${text} (${grouped(known.get(value))})` : text])];
}

/** The workloads that pass a filter, as parameters of REST.
 * @param {{filter: Record<string, string | null>, title: string, whole?: number, empty: string, asOf: string | null}} props */
export function WorkloadPages({ filter, title, whole, empty, asOf }) {
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
      <${Pager} pages=${pages} next=${page.next} count=${page.items.length} whole=${whole} noun="workload" />`}<//>
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

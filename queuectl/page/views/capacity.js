// What the nodes of each flavor have, and what pending pods wait for.
import { amount, amounts, between, counted, devicesFirst, grouped, hours, isDevice } from "../format.js";
import { html, useMemo, useState } from "../lib.js";
import { Asked, Badge, Choice, Download, Empty, Heading, Panel, QueueLink, Stack, Table, Time, WorkloadName } from "../parts.js";
import { path, useRest } from "../rest.js";
import { change } from "../route.js";
import { CellChoice, Points } from "./use.js";

const EVERY = 5000;
const TREND_EVERY = 60_000;
const VERDICTS = { Busy: "ok", Sparse: "calm", Idle: "bad", Hang: "bad", Unknown: "calm", Exempt: "calm" };

const STEPS = { "24h": "Hour", "30d": "Day" }; // as long as REST tells without a begin
const LINES = [
  { field: "held", label: "Held", tone: "used" }, { field: "unmanaged", label: "Unmanaged", tone: "unmanaged" },
  { field: "free", label: "Free", tone: "idle" }, { field: "unusable", label: "Not usable", tone: "bad" },
].map((line) => ({ ...line, fill: 100, stacked: true }));

export function Capacity({ params, asOf }) {
  const capacity = useRest("capacity", { limit: 100, asOf }, { every: asOf ? 0 : EVERY });
  const demand = useRest("demand", { limit: 1000, asOf }, { every: asOf ? 0 : EVERY });
  return html`<${Heading} title="Capacity" />
    <${Asked} of=${capacity} rows=${6}>${(page) => (page.items.length
      ? html`<${Totals} items=${page.items} /><${Trend} items=${page.items} params=${params} asOf=${asOf} />${page.items.map((one) => html`<${Flavor} key=${one.flavor ?? ""} of=${one} />`)}`
      : html`<${Empty}>No nodes are known, or you may not read any ResourceFlavor.<//>`)}<//>
    <${Asked} of=${demand}>${(page) => html`<${Demand} items=${page.items} />`}<//>
    ${!asOf && html`<${Nodes} /><${Idle} />`}`;
}

const STATES = { Ready: "ok", NotReady: "bad", Unhealthy: "bad", Cordoned: "wait", Settling: "wait", Avoided: "wait" };
const MOST_NODES = 200;

/** Each node with its devices and the workloads on it; those with free devices first. */
function Nodes() {
  const nodes = useRest("nodes", { limit: 1000 }, { every: EVERY });
  const [only, setOnly] = useState("");
  return html`<${Asked} of=${nodes}>${(page) => {
    const states = [...new Set(page.items.map((one) => one.state))].sort();
    const rows = page.items.filter((one) => !only || one.state === only);
    const more = rows.length - MOST_NODES;
    return html`<${Panel} title="Nodes" note=${counted(page.items.length, "node")}
      aside=${states.length > 1 && html`<${Choice} label="State" values=${[["", "All"], ...states.map((state) => [state, state])]} value=${only} onChange=${setOnly} />`}>
      ${rows.length ? html`<${Table} label="Nodes" columns=${[["Node", ""], ["State", ""], ["Flavors", ""], ["Used", "said"], ["Free", "number"], ["Workloads", "grow"], ["Taints", "said"]]}>
        ${rows.slice(0, MOST_NODES).map((one) => html`<${NodeRow} key=${one.name} of=${one} />`)}
      <//>` : html`<${Empty}>No nodes are known, or you may not get their ResourceFlavors.<//>`}
      ${(more > 0 || page.next) && html`<p class="soft">${more > 0 ? `${grouped(more)} more` : "more"} in \`queuectl get nodes\`</p>`}
    <//>`;
  }}<//>`;
}

function NodeRow({ of }) {
  const devices = Object.keys(of.allocatable).filter(isDevice);
  const shown = devices.length ? devices : Object.keys(of.allocatable).filter((name) => name === "cpu");
  const lines = (text) => shown.map((name) => html`<div>${text(name)}</div>`);
  return html`<tr><td>${of.name}</td><td><${Badge} tone=${STATES[of.state] ?? "wait"}>${of.state}<//></td><td>${of.flavors.join(", ") || "–"}</td>
    <td>${lines((name) => `${amount(name, of.used[name])} of ${amount(name, of.allocatable[name])} ${name.split("/").pop()}`)}</td>
    <td class="number">${lines((name) => amount(name, of.free[name]))}</td>
    <td class="grow">${of.workloads.map((one) => html`<div>${one.name ? html`<${WorkloadName} of=${one} />` : html`<span class="soft">not shown to you</span>`} <span class="soft">${counted(one.pods, "pod")}</span></div>`)}${!of.workloads.length && "–"}</td>
    <td class="soft">${of.taints.join(", ") || "–"}</td></tr>`;
}

/** Nothing where the controller does not read what GPUs do. */
function Idle() {
  const idle = useRest("idle", {}, { every: 60_000 });
  if (!idle.data?.checkedAt) return null;
  const { items, others, checkedAt, problem } = idle.data;
  const rows = items.filter((one) => one.idleDevices > 0);
  return html`<${Panel} title="Idle GPUs" note=${html`of admitted workloads, checked <${Time} at=${checkedAt} />`}>
    ${problem && html`<p class="notice wait">${problem}</p>`}
    ${rows.length ? html`<${Table} label="Idle GPUs" columns=${[["Workload", "grow"], ["User", ""], ["Verdict", ""], ["GPUs", "number"], ["Idle", "number"], ["GPU-hours lost", "number"]]}>
      ${rows.slice(0, 200).map((one) => html`<tr><td class="grow"><${WorkloadName} of=${one} /></td><td>${one.submitter ?? "–"}</td><td><${Badge} tone=${VERDICTS[one.verdict]}>${one.verdict}<//></td><td class="number">${grouped(one.devices)}</td><td class="number">${grouped(one.idleDevices)}</td><td class="number">${hours("", one.wastedSeconds / 3600)}</td></tr>`)}
    <//>` : html`<${Empty}>No GPU of a workload shown to you is known to be idle.<//>`}
    ${others > 0 && html`<p class="soft">${counted(others, "more idle GPU")} where you may not list workloads</p>`}
  <//>`;
}

function Flavor({ of }) {
  const nodes = Object.entries(of.nodes).map(([state, count]) => `${grouped(count)} ${state}`).join(", ");
  const ordered = [...of.resources].sort((a, b) => devicesFirst(a.resource, b.resource));
  return html`<${Panel} title=${of.flavor ?? "Nodes without a flavor"} note=${nodes ? `nodes: ${nodes}` : "no nodes"}>
    ${of.warnings.map((warning) => html`<p class="notice wait"><b>${warning.code}</b> ${warning.message}</p>`)}
    ${!ordered.length && html`<${Empty}>No quota is promised of it, and its nodes have no devices.<//>`}
    <div class="resources">${ordered.map((one) => html`<${Resource} key=${one.resource} of=${one} />`)}</div>
  <//>`;
}

/** What nodes mean for admission. */
const MODES = {
  Enforce: "An admission needs room on the nodes beside quota", Observe: "Nodes are compared with the quota, and limit no admission",
  Static: "Quota alone decides", Elastic: "Nodes come on demand: quota alone decides",
};

function Resource({ of }) {
  const size = (value) => amount(of.resource, value);
  const ready = of.allocatable.Ready ?? 0;
  const missing = Object.entries(of.allocatable).filter(([state]) => state !== "Ready");
  return html`<div class="resource"><h3>${of.resource} <${Badge} title=${MODES[of.mode]}>${of.mode}<//></h3>
    <p class="soft">${size(ready)} allocatable on ready nodes, ${size(of.nominal)} promised as quota${of.headroom ? `, ${size(of.headroom)} kept free` : ""}${missing.length ? `; not usable: ${missing.map(([state, value]) => `${size(value)} ${state}`).join(", ")}` : ""}</p>
    <${Stack} format=${size} parts=${[
      { tone: "used", label: "used by workloads", value: of.used }, { tone: "unmanaged", label: "unmanaged", value: of.unmanaged },
      { tone: "expected", label: "expected", value: of.expected }, { tone: "idle", label: "free", value: of.available },
    ]} />
    ${isDevice(of.resource) && of.shapes.length > 0 && html`<p class="soft">Free in pieces: ${of.shapes.map((shape) => `${counted(shape.nodes, "node")} with ${size(shape.free)}`).join(", ")}</p>`}
    ${of.unmanagedBy.length > 0 && html`<p class="soft">Unmanaged: ${of.unmanagedBy.map((one) => `${one.namespace ?? "others"} ${size(one.amount)}`).join(", ")}</p>`}
  </div>`;
}

/** Of all flavors together. */
function Totals({ items }) {
  const cells = items.flatMap((one) => one.resources.map((cell) => ({ ...cell, flavor: one.flavor ?? "" })));
  const names = [...new Set(cells.map((one) => one.resource))].sort().sort(devicesFirst);
  if (!names.length) return null;
  /** @type {[string, (one: any) => number][]} */
  const fields = [["On ready nodes", (one) => one.allocatable.Ready ?? 0], ["Promised as quota", (one) => one.nominal], ["Used", (one) => one.used], ["Unmanaged", (one) => one.unmanaged], ["Free", (one) => one.available]];
  const head = ["flavor", "resource", ...fields.map(([title]) => title.toLowerCase())];
  return html`<${Panel} title="All flavors" aside=${html`<${Download} name="capacity.csv" head=${head} rows=${cells.map((one) => [one.flavor, one.resource, ...fields.map(([, of]) => of(one))])} />`}>
    <${Table} label="All flavors" columns=${[["Resource", ""], ...fields.map(([title]) => [title, "number"])]}>
      ${names.map((name) => html`<tr><th scope="row">${name}</th>${fields.map(([title, of]) => html`<td class="number">${amount(name, cells.filter((one) => one.resource === name).reduce((sum, one) => sum + of(one), 0))}</td>`)}</tr>`)}
    <//><//>`;
}

/** What the nodes of one flavor had of one resource: means of hours or days. */
function Trend({ items, params, asOf }) {
  const cells = items.filter((one) => one.flavor).flatMap((one) => one.resources.map(({ resource }) => `${one.flavor} ${resource}`));
  cells.sort(devicesFirst);
  const cell = cells.includes(params.get("cell")) ? params.get("cell") : (cells[0] ?? "");
  const [flavor, resource] = cell.split(" ");
  const range = params.get("range") in STEPS ? params.get("range") : "24h";
  const asked = useRest(flavor ? path("capacity", flavor, "trend") : null, { step: STEPS[range], until: asOf }, { every: asOf ? 0 : TREND_EVERY });
  const points = useMemo(() => (asked.data?.steps ?? []).map((one) => meanOf(one, resource)), [asked.data, resource]);
  if (!flavor) return null;
  const aside = html`<${Choice} label="Time" values=${Object.keys(STEPS).map((each) => [each, each])} value=${range} onChange=${(each) => change({ range: each }, { replace: true })} />`;
  return html`<${Panel} title="Capacity over time" note=${`${resource} of ${flavor}`} aside=${aside}><${CellChoice} cells=${cells} cell=${cell} />
    <${Asked} of=${asked} rows=${5}>${() => (points.some((point) => point.held !== null)
      ? html`<${Points} points=${points} resource=${resource} lines=${LINES} label="Capacity over time" />`
      : html`<${Empty}>It is not known what the nodes had of it in this time.<//>`)}<//><//>`;
}

/** Resource-hours of a step by its hours; null: not known. */
function meanOf({ since, until, resources }, resource) {
  const had = resources.find((one) => one.resource === resource);
  const length = between(since, until) / 3600;
  const means = LINES.map(({ field }) => [field, had && length > 0 ? had[field] / length : null]);
  return { since, until, ...Object.fromEntries(means) };
}

function Demand({ items }) {
  const rows = items.flatMap((queue) => queue.demand.map((one) => ({ queue: queue.clusterQueue, ...one })));
  return html`<${Panel} title="Demand" note="pods of pending workloads">
    ${rows.length ? html`<${Table} label="Demand" columns=${[["ClusterQueue", ""], ["Flavor", ""], ["Waits for", ""], ["Workloads", "number"], ["Pods", "number"], ["Each pod", "grow"]]}>
      ${rows.slice(0, 200).map((row) => html`<tr><td><${QueueLink} name=${row.queue} /></td><td>${row.flavor}</td><td><${Badge} tone="wait">${row.awaits}<//></td><td class="number">${grouped(row.workloads)}</td><td class="number">${grouped(row.pods)}</td><td class="grow">${amounts(row.requests)}</td></tr>`)}
    <//>` : html`<${Empty}>No pending pods wait for quota or room.<//>`}
  <//>`;
}

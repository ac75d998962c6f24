// All flavors, the cohort tree with what each node uses, and the last decisions.
import { amount, devicesFirst, grouped, percent, unit } from "../format.js";
import { resourcesOf, treeRows } from "../facts.js";
import { html, useState } from "../lib.js";
import { Asked, Badge, Bar, Choice, Empty, FREE, Heading, Panel, Table } from "../parts.js";
import { useRest } from "../rest.js";
import { change, route, to } from "../route.js";
import { DecisionList, useDecisions } from "./decisions.js";
import { WorkloadTable } from "./workloads.js";

const EVERY = 3000;
const MOST = 1000;
const FIRST = 200;
const LATEST = 7;
const OLDEST = 5;

export function Overview({ asOf }) {
  const params = { limit: MOST, asOf };
  const how = { every: asOf ? 0 : EVERY };
  const queues = useRest("clusterqueues", params, how);
  const cohorts = useRest("cohorts", params, how);
  const flavors = useRest("resourceflavors", params, how);
  return html`<${Heading} title="Overview" />
    <${Asked} of=${queues} rows=${2}>${(page) => html`<${Sums} queues=${page.items} more=${page.next} />`}<//>
    <${Asked} of=${flavors} rows=${2}>${(page) => html`<${Flavors} flavors=${page.items} />`}<//>
    <div class="two">
      <div class="column">
        <${Asked} of=${queues}>${(page) => html`<${Tree} queues=${page.items} more=${page.next} cohorts=${cohorts.data?.items ?? []} />`}<//>
        <${Oldest} asOf=${asOf} />
      </div>
      ${!asOf && html`<${Latest} />`}
    </div>`;
}

function Sums({ queues, more }) {
  const sum = (field) => queues.reduce((whole, one) => whole + one[field], 0);
  const plus = more ? "+" : "";
  const tiles = [
    ["Pending", sum("pending"), to(["workloads"], { phase: "Pending" }), "wait"],
    ["Admitted", sum("admitted"), to(["workloads"], { phase: "Admitted" }), "ok"],
    ["ClusterQueues", queues.length, null, ""],
    ["Not active", queues.filter((one) => !one.active).length, null, "bad"],
  ];
  return html`<ul class="tiles" aria-label="Workloads and queues">${tiles.map(([label, value, href, tone]) => html`<li class=${value ? tone : ""}>
    <span class="label">${label}</span>${href ? html`<a class="value" href=${href}>${grouped(value)}${plus}</a>` : html`<span class="value">${grouped(value)}${plus}</span>`}</li>`)}</ul>`;
}

function Flavors({ flavors }) {
  if (!flavors.length) return null;
  return html`<${Panel} title="ResourceFlavors"><ul class="flavors">${flavors.map((flavor) => html`<${Flavor} key=${flavor.name} flavor=${flavor} />`)}</ul><//>`;
}

function Flavor({ flavor }) {
  const ordered = [...flavor.resources].sort((a, b) => devicesFirst(a.resource, b.resource));
  const [main, ...others] = ordered;
  if (!main) return html`<li class="card"><h3>${flavor.name}</h3><p class="soft">No quota</p></li>`;
  return html`<li class="card"><h3>${flavor.name}</h3>
    <p class="big"><b>${amount(main.resource, main.used)}</b><span class="soft"> / ${amount(main.resource, main.nominal)} ${unit(main.resource)}</span><span class="soft end">${percent(main.used, main.nominal)}</span></p>
    <${Bar} ...${main} />
    ${others.map((one) => html`<div class="minor"><span class="soft">${unit(one.resource)}</span><${Bar} thin ...${one} /><span class="number">${percent(one.used, one.nominal)}</span></div>`)}
  </li>`;
}

function Tree({ queues, cohorts, more }) {
  const [all, setAll] = useState(false);
  if (!queues.length && !cohorts.length) return html`<${Panel} title="Cohorts and ClusterQueues"><${NothingHere} /><//>`;
  const resources = resourcesOf([...queues, ...cohorts]);
  const asked = route.get().params.get("resource") ?? "";
  const resource = resources.includes(asked) ? asked : resources[0];
  const rows = treeRows(queues, cohorts);
  const shown = all ? rows : rows.slice(0, FIRST);
  const aside = resources.length > 1 && html`<${Choice} label="Resource" values=${resources.map((one) => [one, unit(one)])} value=${resource} onChange=${(one) => change({ resource: one }, { replace: true })} />`;
  return html`<${Panel} title="Cohorts and ClusterQueues" aside=${aside}>
    <ul class="legend keys" aria-hidden="true"><li><i class="used"></i>used</li><li><i class="borrowed"></i>borrowed</li><li><i class="lent"></i>lent</li><li><i class="idle"></i>free</li></ul>
    <${Table} label="Cohorts and ClusterQueues" columns=${[["Name", ""], [`Use of ${unit(resource)}`, "grow"], ["Used", "number"], ["Nominal", "number"], ["Borrowed", "number wide"], ["Lent", "number wide"], [FREE, "number"], ["Pending", "number"], ["Admitted", "number wide"]]}>
      ${shown.map((row) => html`<${TreeRow} key=${`${row.kind}/${row.name}`} row=${row} resource=${resource} scale=${scaleOf(row, rows, resource)} />`)}
    <//>
    ${rows.length > shown.length && html`<p class="pager"><button onClick=${() => setAll(true)}>Show all ${grouped(rows.length)} rows</button></p>`}
    ${more && html`<p class="soft">The first ${grouped(MOST)} ClusterQueues: search for the others.</p>`}
  <//>`;
}

/** Bars of nodes at the same depth compare with each other. */
function scaleOf(row, rows, resource) {
  const peers = rows.filter((one) => one.depth === row.depth && one.node);
  return Math.max(0, ...peers.flatMap((one) => cells(one.node, resource).map((cell) => Math.max(cell.nominal, cell.used))));
}

const cells = (node, resource) => node.flavors.filter((cell) => cell.resource === resource && (cell.nominal || cell.used));

function TreeRow({ row, resource, scale }) {
  const { node, kind, name, depth } = row;
  const own = node ? cells(node, resource) : [];
  const isQueue = kind === "ClusterQueue";
  const lines = (value) => own.map((cell) => html`<div>${value(cell)}</div>`);
  const or = (value) => (value ? amount(resource, value) : html`<span class="faint">–</span>`);
  return html`<tr class=${isQueue ? "" : "cohort"}>
    <th scope="row" style=${{ paddingLeft: `${12 + depth * 18}px` }}>
      ${isQueue ? html`<a href=${to(["clusterqueues", name])}>${name}</a>` : html`<span>${name}</span> <span class="soft small">Cohort</span>`}
      ${node && !node.active && html` <${Badge} tone="bad" title=${node.condition.message}>${node.condition.reason}<//>`}
      ${isQueue && node.warnings.map((one) => html` <${Badge} tone="wait" title=${one.message}>${one.code}<//>`)}
    </th>
    <td class="grow">${own.map((cell) => html`<div class="cellbar"><span class="soft flavor">${cell.flavor}</span><${Bar} ...${cell} scale=${scale} /></div>`)}</td>
    <td class="number">${lines((cell) => amount(resource, cell.used))}</td>
    <td class="number soft">${lines((cell) => amount(resource, cell.nominal))}</td>
    <td class="number wide borrowing">${isQueue && lines((cell) => or(cell.borrowed))}</td>
    <td class="number wide">${isQueue && lines((cell) => or(cell.lent))}</td>
    <td class="number">${isQueue && lines((cell) => amount(resource, cell.free))}</td>
    <td class="number">${node ? (node.pending ? html`<b class=${isQueue ? "wait" : ""}>${grouped(node.pending)}</b>` : html`<span class="faint">0</span>`) : ""}</td>
    <td class="number wide soft">${node ? grouped(node.admitted) : ""}</td>
  </tr>`;
}

/** Also for callers that may read no ClusterQueue. */
const NothingHere = () => html`<${Empty}>There is no ClusterQueue, or you may not read any. Your workloads are under <a href=${to(["workloads"])}>Workloads</a>.<//>`;

/** Those that were observed first, and why they still wait. */
function Oldest({ asOf }) {
  const asked = useRest("workloads", { phase: "Pending", limit: OLDEST, asOf }, { every: asOf ? 0 : EVERY });
  if (!asked.data?.items.length) return null;
  return html`<${Panel} title="Oldest pending workloads" aside=${html`<a href=${to(["workloads"], { phase: "Pending" })}>All pending</a>`}>
    <${WorkloadTable} brief items=${asked.data.items} label="Oldest pending workloads" asOf=${asOf} /><//>`;
}

function Latest() {
  const told = useDecisions({}, LATEST);
  return html`<${Panel} title="Last decisions" aside=${html`<a href=${to(["decisions"])}>All</a>`}><${DecisionList} told=${told} most=${LATEST} brief /><//>`;
}

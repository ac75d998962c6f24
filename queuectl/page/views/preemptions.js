// Workloads that were evicted for others.
import { deviceTime, duration, timestamp } from "../format.js";
import { html, useMemo } from "../lib.js";
import { Asked, Badge, Empty, Heading, Named, NodeName, Pager, Panel, QueueLink, Table, usePages, WorkloadName } from "../parts.js";
import { hoursAgo, useRest } from "../rest.js";
import { Filters } from "./filters.js";

const PAGE = 100;
const SINCE = [["", "All"], ["1", "1 hour"], ["24", "24 hours"], ["168", "7 days"], ["720", "30 days"]];

export function Preemptions({ params, asOf }) {
  const filter = Object.fromEntries(["namespace", "queue", "clusterqueue"].map((name) => [name, params.get(name)]));
  const back = Number(params.get("since"));
  const since = useMemo(() => (back > 0 ? hoursAgo(back, asOf) : null), [back, asOf]);
  const pages = usePages(JSON.stringify([filter, since, asOf]));
  const asked = useRest("preemptions", { ...filter, since, asOf, limit: PAGE, next: pages.next });
  return html`<${Heading} title="Preemptions" />
    <${Filters} fields=${["namespace", "queue", "clusterqueue", ["since", SINCE]]} params=${params} />
    <${Panel} title="Evicted for other workloads" note="newest first" aside=${html`<button onClick=${asked.reload}>Reload</button>`}>
      <${Asked} of=${asked} rows=${8}>${(page) => html`
        ${page.items.length ? html`<${List} items=${page.items} />` : html`<${Empty}>No workload that you may read was preempted.<//>`}
        <${Pager} pages=${pages} next=${page.next} count=${page.items.length} noun="preemption" />`}<//>
    <//>`;
}

const List = ({ items }) => html`<${Table} label="Preemptions" columns=${[["Time", ""], ["Evicted", ""], ["ClusterQueue", ""], ["Rule", ""], ["For", "said"], ["Ran", "number"], ["Lost", "number"], ["Dominant shares", "said"]]}>
  ${items.map((one) => html`<tr key=${one.sequence}>
    <td class="time">${timestamp(one.time)}</td><td class="fold"><${WorkloadName} of=${one} /></td><td><${QueueLink} name=${one.clusterQueue} /></td>
    <td><${Badge}>${one.cause ?? "–"}<//></td><td class="fold"><${Named} who=${one.by} /></td>
    <td class="number">${one.ranSeconds === null ? "–" : duration(one.ranSeconds)}</td><td class="number">${deviceTime(one.lost) || "–"}</td>
    <td class="fold">${one.shares ? html`<${Move} of=${one.shares.preemptor} /><${Move} of=${one.shares.victim} />` : html`<span class="faint">–</span>`}</td></tr>`)}
<//>`;

const Move = ({ of }) => html`<div class="number"><${NodeName} brief node=${of.node} /> <span class="soft">${share(of.before)} → ${share(of.after)}</span></div>`;

/** Thousandths as percent; null: the weight is 0. */
const share = (value) => (value === null ? "∞" : `${value / 10}%`);

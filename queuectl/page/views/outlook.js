// What may come: what would start a workload now, when it may start, what may take its quota.
import { duration, timestamp } from "../format.js";
import { html } from "../lib.js";
import { Named, NodeName, Panel, QueueLink, Table } from "../parts.js";
import { useRest } from "../rest.js";

/** The smallest changes that start it now, if the document has them. */
export function Counterfactuals({ of }) {
  const found = of.counterfactuals;
  if (!found?.length) return null;
  return html`<${Panel} title="What would start it now"><ul class="options">${found.map((one) => html`<li>
    <b>${one.message}</b>
    ${one.displaces?.length > 0 && html`<p class="soft">It would displace ${one.displaces.map((who, place) => html`${place > 0 && ", "}<${Named} who=${typeof who === "string" ? who : null} />`)}</p>`}
  </li>`)}</ul><//>`;
}

/** When it may start, if the document has it. */
export function Eta({ of }) {
  const eta = of.eta;
  if (!eta?.median) return null;
  return html`<${Panel} title="When it may start"><p class="lead">${when(eta.median)}</p>
    ${eta.low && eta.high && html`<p class="soft">From ${when(eta.low)} to ${when(eta.high)} in 80 of 100 forecasts.</p>`}<//>`;
}

const when = (value) => (typeof value === "number" ? `in ${duration(value)}` : timestamp(value));

/** Whether a running workload may be preempted now. */
export function Exposure({ one }) {
  const { data } = useRest(`${one}/exposure`);
  if (!data) return null;
  if (!data.threats.length) return html`<${Panel} title="May it be preempted"><p>No queue may preempt it now.</p><//>`;
  return html`<${Panel} title="May it be preempted" note=${data.exposed ? "yes: a workload waits that may preempt it" : "not now: no workload waits that may preempt it"}>
    <${Table} label="Queues that may preempt it" columns=${[["ClusterQueue", ""], ["Rule", ""], ["Policy", ""], ["Pending", "number"], ["Protected until", ""]]}>
      ${data.threats.map((threat) => html`<tr><td>${threat.clusterQueue ? html`<${QueueLink} name=${threat.clusterQueue} />` : html`<${NodeName} node=${null} />`}</td><td>${threat.cause}</td><td>${threat.policy ?? "–"}</td><td class="number">${threat.pending}</td><td>${threat.protectedUntil ? timestamp(threat.protectedUntil) : "–"}</td></tr>`)}
    <//><//>`;
}

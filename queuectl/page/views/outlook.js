// What may come: what would start a workload now, when it may start, what may take its quota.
import { Actions, ofFit } from "../actions.js";
import { counted, duration, percent, timestamp } from "../format.js";
import { html, useState } from "../lib.js";
import { Asked, Empty, NodeName, Panel, QueueLink, Table, WorkloadName } from "../parts.js";
import { useRest } from "../rest.js";

/** The smallest changes that start a pending workload now. Asked for by a button: REST tries each on a copy of the state.
 * @param {{one: string, of: any, done: () => void}} props `one`: its path in REST; `done`: after one was made */
export function Counterfactuals({ one, of, done }) {
  const [wanted, setWanted] = useState(false);
  const asked = useRest(wanted ? `${one}/counterfactuals` : null);
  const made = () => {
    setWanted(false); // they were about the former size
    done();
  };
  return html`<${Panel} title="What would start it now" aside=${!wanted && html`<button onClick=${() => setWanted(true)}>Try changes</button>`}
      note=${wanted ? "each was tried by the planner on a copy of the state" : ""}>
    ${!wanted && html`<p class="soft">The smallest changes of each kind: fewer pods or devices, another flavor, queue or priority, more quota.</p>`}
    ${wanted && html`<${Asked} of=${asked} rows=${3}>${(found) => html`<${Changes} of=${found} ways=${(change) => change.fit && html`<${Actions} where=${one} label=${change.message} actions=${[ofFit(of, change.fit)]} done=${made} />`} />`}<//>`}
  <//>`;
}

/** Changes that were tried.
 * @param {{of: any, ways?: (change: any) => any}} props `ways`: buttons that make one */
export const Changes = ({ of, ways = () => null }) => html`
  ${of.items.length ? html`<ul class="options">${of.items.map((change) => html`<li><b>${change.message}</b><${Displaced} who=${change.displaces} />${ways(change)}</li>`)}</ul>` : html`<${Empty}>No single change starts it now.<//>`}
  ${of.incomplete.length > 0 && html`<p class="soft">Not all were tried: ${of.incomplete.join(", ")}.</p>`}`;

export function Displaced({ who }) {
  if (!who.length) return html`<p class="soft">It displaces nothing.</p>`;
  return html`<p class="soft">It displaces ${who.map((one, place) => html`${place > 0 && ", "}<${WorkloadName} of=${one} />${one.cause ? ` (${one.cause})` : ""}`)}</p>`;
}

/** When a pending workload starts. Asked for by a button: REST plays the time to come many times. */
export function Eta({ one }) {
  const [wanted, setWanted] = useState(false);
  const asked = useRest(wanted ? `${one}/eta` : null);
  return html`<${Panel} title="When it may start" aside=${!wanted && html`<button onClick=${() => setWanted(true)}>Forecast</button>`}>
    ${!wanted && html`<p class="soft">Median and 80 % interval, from the run times of earlier workloads.</p>`}
    ${wanted && html`<${Asked} of=${asked} rows=${2}>${(found) => html`<${Forecast} of=${found} />`}<//>`}
  <//>`;
}

function Forecast({ of }) {
  if (of.unknown) return html`<p>Unknown: ${of.unknown}</p>`;
  const inTime = (seconds) => (seconds === null ? `after more than ${duration(of.afterSeconds ?? 0)}` : `in ${duration(seconds)}`);
  const { calibration } = of;
  return html`<p class="lead">${inTime(of.medianSeconds)}${of.medianSeconds !== null && html` <span class="soft">about ${timestamp(new Date(Date.parse(of.at) + 1000 * of.medianSeconds))}</span>`}</p>
    <p>80 % of ${counted(of.draws, "draw")} are from ${inTime(of.lowSeconds)} to ${inTime(of.highSeconds)}.
      <span class="soft">${calibration ? ` ${calibration.held} of ${calibration.checked} such intervals held (${percent(calibration.held, calibration.checked)}) since ${timestamp(calibration.since)}.` : " How often such intervals held is not known yet."}</span></p>`;
}

/** Whether a running workload may be preempted, now or as of a time. */
export function Exposure({ one, asOf }) {
  const { data } = useRest(`${one}/exposure`, { asOf });
  if (!data) return null;
  if (!data.threats.length) return html`<${Panel} title="May it be preempted"><p>No queue may preempt it now.</p><//>`;
  return html`<${Panel} title="May it be preempted" note=${data.exposed ? "yes: a workload waits that may preempt it" : "not now: no workload waits that may preempt it"}>
    <${Table} label="Queues that may preempt it" columns=${[["ClusterQueue", ""], ["Rule", ""], ["Policy", ""], ["Pending", "number"], ["Protected until", "said"]]}>
      ${data.threats.map((threat) => html`<tr><td>${threat.clusterQueue ? html`<${QueueLink} name=${threat.clusterQueue} />` : html`<${NodeName} node=${null} />`}</td><td>${threat.cause}</td><td>${threat.policy ?? "–"}</td><td class="number">${threat.pending}</td><td>${threat.protectedUntil ? timestamp(threat.protectedUntil) : "–"}</td></tr>`)}
    <//><//>`;
}

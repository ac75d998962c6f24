// One LocalQueue: where it queues, whether it admits, and its workloads.
import { Actions, ofQueue } from "../actions.js";
import { duration, grouped } from "../format.js";
import { html } from "../lib.js";
import { Asked, Facts, Heading, QueueBadges, QueueLink } from "../parts.js";
import { path, useRest } from "../rest.js";
import { WorkloadPages } from "./workloads.js";

const EVERY = 3000;

export function LocalQueue({ namespace, name, asOf }) {
  const one = path("localqueues", namespace, name);
  const asked = useRest(one, { asOf }, { every: asOf ? 0 : EVERY });
  return html`<${Heading} kind=${`LocalQueue in namespace ${namespace}`} title=${name}
    aside=${asked.data && !asOf && html`<${Actions} where=${one} actions=${ofQueue(asked.data)} done=${asked.reload} />`}>${asked.data && html`<${QueueBadges} queue=${asked.data} />`}<//>
    <${Asked} of=${asked} rows=${2}>${(queue) => html`
      ${!queue.active && html`<p class="notice bad">${queue.condition.message}</p>`}
      <${Facts} rows=${[
        ["ClusterQueue", html`<${QueueLink} name=${queue.clusterQueue} />`], ["Pending", grouped(queue.pending)], ["Admitted", grouped(queue.admitted)],
        ["Most run time", queue.maxExecutionTime.ceiling === null ? null : duration(queue.maxExecutionTime.ceiling)],
      ]} />`}<//>
    <${WorkloadPages} filter=${{ namespace, queue: name }} title="Its workloads" empty="It has none that you may read and that is not over." asOf=${asOf} />`;
}

// Whether a workload would start, before it is created.
import { Editor } from "../editor.js";
import { amount, grouped, unit } from "../format.js";
import { html } from "../lib.js";
import { Badge, Facts, Heading, NodeName, Panel, QueueLink, Table } from "../parts.js";
import { useRest } from "../rest.js";
import { Changes, Displaced } from "./outlook.js";

const STARTS = {
  Now: ["ok", "It starts now", ""],
  AfterPreemption: ["wait", "It starts after a preemption", "as soon as the pods of preempted workloads have ended"],
  NotYet: ["wait", "It waits", "quota or room is missing now"],
  Never: ["bad", "It cannot start", "waiting does not help"],
};

const example = (queue) => `apiVersion: batch/v1
kind: Job
metadata:
  name: train
  namespace: ${queue?.namespace ?? "default"}
  labels:
    queuectl.dev/queue-name: ${queue?.name ?? "main"}
spec:
  parallelism: 2
  completions: 2
  suspend: true
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: main
        image: registry.example.com/train:1.0
        resources:
          limits:
            nvidia.com/gpu: 4
`;

export function Quote() {
  const queues = useRest("localqueues", { limit: 1 });
  return html`<${Heading} title="Quote" />
    <p class="soft">Whether a workload would start now, where, and what it would displace: tried on a copy of the state.</p>
    <div class="two halves"><${Editor} name="quote" where="quote" label="The workload, as you would create it" button="Would it start?" example=${example(queues.data?.items[0])}>
      ${(answer) => html`<${Answer} of=${answer} />`}<//></div>`;
}

function Answer({ of }) {
  const [tone, title, more] = STARTS[of.now.starts];
  const holds = of.now.admission?.podSets ?? [];
  const borrowed = Object.entries(of.borrows).flatMap(([flavor, amounts]) => Object.entries(amounts).map(([resource, value]) => `${amount(resource, value)} ${unit(resource)} of ${flavor}`));
  return html`<div class=${`verdict ${tone}`}><b>${title}</b>${more && html`<span>${more}</span>`}</div>
    ${of.reason && html`<p class="lead">${of.reason.message}</p>`}
    <${Facts} rows=${[
      ["ClusterQueue", of.clusterQueue && html`<${QueueLink} name=${of.clusterQueue} />`], ["Priority", of.priority],
      ["Ahead of it", of.ahead === null ? null : grouped(of.ahead)], ["Borrows", borrowed.join(", ")],
    ]} />
    ${holds.length > 0 && html`<${Panel} title="What it would hold"><${Table} label="What it would hold" columns=${[["Podset", ""], ["Pods", "number"], ["Flavors", "grow"]]}>
      ${holds.map((set) => html`<tr><th scope="row">${set.name}</th><td class="number">${set.count}</td><td class="grow">${Object.entries(set.flavors).map(([resource, flavor]) => html`<${Badge}>${unit(resource)}: ${flavor}<//> `)}</td></tr>`)}
    <//><//>`}
    ${of.now.displaces.length > 0 && html`<${Panel} title="What it would displace"><${Displaced} who=${of.now.displaces} /><//>`}
    ${(of.items.length > 0 || of.now.starts === "NotYet") && html`<${Panel} title="Cheaper shapes" note="the smallest changes with which it starts"><${Changes} of=${of} /><//>`}
    ${of.threats.length > 0 && html`<${Panel} title="What may take it back"><ul class="plain">${of.threats.map((threat) => html`<li>
      <${NodeName} node=${threat.clusterQueue && `ClusterQueue/${threat.clusterQueue}`} /> <${Badge}>${threat.cause}<//> <span class="soft">${grouped(threat.pending)} pending may do so now</span></li>`)}</ul><//>`}`;
}

// What another policy would decide at once.
import { Editor } from "../editor.js";
import { counted, grouped, yaml } from "../format.js";
import { html, useState } from "../lib.js";
import { Badge, Choice, Empty, Heading, Panel, QueueLink, Table, WorkloadName } from "../parts.js";
import { path, useRest } from "../rest.js";
import { change } from "../route.js";

const TONES = { Admitted: "ok", Evicted: "bad", Stranded: "wait", Created: "ok", Changed: "wait", Deleted: "bad" };
const WORDS = { OtherReason: "Other reason" };
const MOST = 200;

/** A change of a ClusterQueue starts from the object as it is: one of its name replaces it. */
export function Plan({ params }) {
  const queues = useRest("clusterqueues", { limit: 1000 }).data?.items ?? [];
  const name = params.get("clusterqueue") ?? queues[0]?.name;
  const { data } = useRest(name ? path("clusterqueues", name) : null);
  const spec = data?.spec ?? { cohortName: "research", namespaceSelector: {}, resourceGroups: [{ coveredResources: ["nvidia.com/gpu"], flavors: [{ name: "a100", resources: [{ name: "nvidia.com/gpu", nominalQuota: 16 }] }] }] };
  const example = yaml({ apiVersion: "queuectl.dev/v1beta1", kind: "ClusterQueue", metadata: { name: data?.name ?? "team-new" }, spec });
  return html`<${Heading} title="Plan" />
  <p class="soft">Which objects another policy changes, and which workloads it would admit, evict and strand at once: a dry run on the state of now.</p>
  ${queues.length > 0 && html`<div class="fields"><label class="field">Start from ClusterQueue <select value=${name} onChange=${(event) => change({ clusterqueue: event.target.value }, { replace: true })}>
    ${queues.map((one) => html`<option value=${one.name} selected=${one.name === name}>${one.name}</option>`)}</select></label></div>`}
  <div class="two halves"><${Editor} name="plan" where="plan" label="Policy objects, as they would be" button="What would it decide?" example=${example} start=${data ? `Start from ${data.name}` : undefined}>
    ${(answer) => html`<${Answer} of=${answer} />`}<//></div>`;
}

function Answer({ of }) {
  const [only, setOnly] = useState("");
  const tiles = [["Admitted", of.admitted], ["Evicted", of.evicted], ["Stranded", of.stranded], ["OtherReason", of.otherReason]];
  const rows = of.items.filter((one) => !only || one.change === only);
  return html`<ul class="tiles" aria-label="At once">${tiles.map(([label, value]) => html`<li class=${value ? TONES[label] : ""}><span class="label">${WORDS[label] ?? label}</span><span class="value">${grouped(value)}</span></li>`)}</ul>
    ${of.inactive.map((one) => html`<p class="notice bad"><${QueueLink} name=${one.clusterQueue} /> would not be active: ${one.condition.message}</p>`)}
    ${of.warnings.map((one) => html`<p class="notice">${one.object} ${one.field}: ${one.message}</p>`)}
    <${Panel} title="Objects" note=${of.objects.length ? counted(of.objects.length, "change") : ""}>
      ${of.objects.length ? html`<${Table} label="Objects that change" columns=${[["Object", ""], ["Is", ""], ["Fields", "grow"]]}>
        ${of.objects.slice(0, MOST).map((one) => html`<tr><td>${one.object}</td><td><${Badge} tone=${TONES[one.change]}>${one.change}<//></td><td class="grow text">${one.fields.map((field) => html`<div><code>${field.field}</code>: <s>${field.before ?? "unset"}</s> <b>${field.after ?? "unset"}</b></div>`)}</td></tr>`)}
      <//>` : html`<${Empty}>No object changes.<//>`}
      ${of.objects.length > MOST && html`<p class="soft">and ${grouped(of.objects.length - MOST)} more</p>`}
    <//>
    <${Panel} title="Workloads" note=${of.items.length ? counted(of.items.length, "workload") : ""}
      aside=${of.items.length > 0 && html`<${Choice} label="Change" values=${[["", "All"], ...tiles.filter(([, value]) => value).map(([label]) => [label, WORDS[label] ?? label])]} value=${only} onChange=${setOnly} />`}>
      ${rows.length ? html`<${Table} label="What the policy would decide" columns=${[["Workload", ""], ["Becomes", ""], ["Where, or why", "grow"]]}>
        ${rows.slice(0, MOST).map((one) => html`<tr><td><${WorkloadName} of=${one} /></td><td><${Badge} tone=${TONES[one.change]}>${WORDS[one.change] ?? one.change}<//></td><td class="grow text"><${Why} of=${one} /></td></tr>`)}
      <//>` : html`<${Empty}>It would decide nothing else about any workload.<//>`}
      ${rows.length > MOST && html`<p class="soft">and ${grouped(rows.length - MOST)} more</p>`}
    <//>`;
}

function Why({ of }) {
  if (of.reason) return html`<span class="soft">${of.reason.message}</span>`;
  if (!of.admission) return null;
  const flavors = new Set(of.admission.podSets.flatMap((set) => Object.values(set.flavors)));
  return html`<${QueueLink} name=${of.admission.clusterQueue} /> <span class="soft">${[...flavors].join(", ")}</span>`;
}

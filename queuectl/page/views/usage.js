// Who held what over a time, what is left of limits and budgets, and past usage.
import { amount, devicesFirst, duration, grouped, hours, hoursOf, percent, timestamp, unit } from "../format.js";
import { html, useMemo, useState } from "../lib.js";
import { Asked, Badge, Choice, Download, Empty, Failure, Heading, Panel, Table } from "../parts.js";
import { hoursAgo, path, useRest } from "../rest.js";
import { change } from "../route.js";

const BY = [["user", "User"], ["namespace", "Namespace"], ["clusterqueue", "ClusterQueue"], ["localqueue", "LocalQueue"], ["class", "Priority class"], ["flavor", "Flavor"]];
const SINCE = [["", "This month"], ["24h", "24 hours"], ["7d", "7 days"], ["30d", "30 days"]];
const HOURS = { "24h": 24, "7d": 168, "30d": 720 };
const MOST = 200;
const OTHERS = "not shown to you";

export function Usage({ params }) {
  const by = BY.some(([name]) => name === params.get("by")) ? params.get("by") : "user";
  const range = params.get("range") in HOURS ? params.get("range") : "";
  const since = useMemo(() => (range ? hoursAgo(HOURS[range]) : null), [range]);
  const asked = useRest("usage", { by, since });
  return html`<${Heading} title="Usage" />
    <${Asked} of=${asked} rows=${8}>${(found) => html`<${Held} found=${found} by=${by} range=${range} params=${params} />`}<//>
    <${Limits} />
    <${Budgets} />
    <${PastUsage} params=${params} />`;
}

function Held({ found, by, range, params }) {
  const resources = [...new Set(found.items.map((one) => one.resource))].sort(devicesFirst);
  const resource = resources.includes(params.get("resource")) ? params.get("resource") : resources[0];
  const rows = found.items.filter((one) => one.resource === resource);
  const whole = rows.reduce((sum, one) => sum + one.amount, 0);
  const idle = rows.reduce((sum, one) => sum + one.idle, 0);
  const most = Math.max(...rows.map((one) => one.amount));
  const label = BY.find(([name]) => name === by)?.[1];
  const name = (one) => (one.others ? OTHERS : (one.keys[by] ?? "–"));
  const pick = (title, values, value, field) => html`<label class="field">${title} <select value=${value} onChange=${(event) => change({ [field]: event.target.value }, { replace: true })}>
    ${values.map(([each, text]) => html`<option value=${each} selected=${each === value}>${text}</option>`)}</select></label>`;
  return html`<${Panel} title="Held" note=${`resource-hours from ${timestamp(found.since)} to ${timestamp(found.until)}`}
      aside=${html`<${Download} name=${`usage-by-${by}.csv`} head=${[by, "resource", "hours", "idle"]} rows=${found.items.map((one) => [name(one), one.resource, ...[one.amount, one.idle].map((amount) => hours(one.resource, amount).replaceAll(",", ""))])} /><${Choice} label="Time" values=${SINCE} value=${range} onChange=${(each) => change({ range: each || null }, { replace: true })} />`}>
    <div class="fields">${pick("By", BY, by, "by")}${resources.length > 1 && pick("Resource", resources.map((each) => [each, each]), resource, "resource")}</div>
    ${rows.length ? html`<${Table} label="Usage" columns=${[[label, ""], [html`<span class="hidden">Of the most</span>`, "grow"], [hoursOf(resource), "number"], ["Share", "number"], ...(idle ? [["Idle", "number"]] : [])]}>
      ${rows.slice(0, MOST).map((one) => html`<tr><th scope="row">${name(one)}</th><td class="grow"><span class="meter"><i style=${{ width: `${(100 * one.amount) / most}%` }}></i></span></td>
        <td class="number">${hours(resource, one.amount)}</td><td class="number soft">${percent(one.amount, whole)}</td>${idle > 0 && html`<td class="number">${hours(resource, one.idle)}</td>`}</tr>`)}
      <tr class="total"><th scope="row">Total</th><td class="grow"></td><td class="number">${hours(resource, whole)}</td><td class="number soft">100%</td>${idle > 0 && html`<td class="number">${hours(resource, idle)}</td>`}</tr>
    <//>` : html`<${Empty}>Nothing was held in this time.<//>`}
    ${rows.length > MOST && html`<p class="soft">and ${grouped(rows.length - MOST)} more in the CSV</p>`}
  <//>
  ${found.totals.length > 0 && html`<${Panel} title="What the nodes had"><${Table} label="What the nodes had" columns=${[["Flavor", ""], ["Resource", ""], ["Used", "number"], ["Free", "number"], ["Unmanaged", "number"], ["Not usable", "number"]]}>
    ${[...found.totals].sort((a, b) => devicesFirst(a.resource, b.resource)).map((one) => html`<tr><th scope="row">${one.flavor}</th><td>${hoursOf(one.resource)}</td>${["used", "free", "unmanaged", "unusable"].map((field) => html`<td class="number">${hours(one.resource, one[field])}</td>`)}</tr>`)}
  <//><//>`}`;
}

/** Nothing where there are no UsageLimits that count what the caller may read. `clusterqueue`: those at it and
 * at the Cohorts above it. */
export function Limits({ clusterqueue = null, asOf = null }) {
  const filter = { limit: MOST, clusterqueue, asOf };
  const { data } = useRest("usagelimits", filter, { every: asOf ? 0 : 60_000 });
  const [mine, setMine] = useState(false);
  const own = useRest(mine ? "usagelimits" : null, { ...filter, submitter: "@me" });
  if (!data?.items.length) return null;
  const items = mine ? (own.data?.items ?? []) : data.items;
  return html`<${Panel} title="Limits" note="what subjects use now of UsageLimits" aside=${html`<label class="check"><input type="checkbox" checked=${mine} onChange=${() => setMine(!mine)} /> Mine</label>`}>
    ${mine && own.problem ? html`<${Failure} problem=${own.problem} />` : html`<${Table} label="Limits" columns=${[["Limit", ""], ["Subject", ""], ["Of", ""], ["Resource", ""], ["Used", "number"], ["Most", "number"], ["Left", "number"], ["Waiting", "number"], ["Binds", "said"]]}>
    ${items.map((one) => html`<tr><th scope="row">${one.usageLimit}</th><td>${one.subject || "all"}</td><td class="fold">${one.target}</td><td>${unit(one.resource)}${one.flavor && html` <span class="soft">of ${one.flavor}</span>`}</td>
      ${[one.used, one.limit].map((value) => html`<td class="number">${amount(one.resource, value)}</td>`)}
      <td class=${`number ${one.left < 0 ? "refusal" : ""}`}>${amount(one.resource, one.left)}</td><td class="number">${grouped(one.waiting)}</td>
      <td>${one.binding && html`<${Badge} tone=${one.left > 0 ? "calm" : "wait"} title="Of the limits on this resource that apply to some workload, it has the least left">yes<//>`}</td></tr>`)}
  <//>`}
  ${(mine ? own.data?.next : data.next) && html`<p class="soft">and more in <code>queuectl limits</code></p>`}<//>`;
}

/** Nothing where there are no Budgets that the caller may read. */
function Budgets() {
  const { data } = useRest("budgets", {}, { every: 60_000 });
  if (!data?.items.length) return null;
  return html`<${Panel} title="Budgets" note="of the present period"><${Table} label="Budgets" columns=${[["Budget", ""], ["Subject", ""], ["Of", ""], ["Resource", ""], ["Mode", ""], ["Budget", "number"], ["Used", "number"], ["Reserved", "number"], ["Left", "number"], ["Ends", "said"]]}>
    ${data.items.slice(0, MOST).map((one) => html`<tr><th scope="row">${one.budget}</th><td>${one.subject || "all"}</td><td class="fold">${one.target}</td><td>${hoursOf(one.resource)}</td><td><${Badge}>${one.mode}<//></td>
      ${[one.hours, one.used, one.reserved].map((value) => html`<td class="number">${hours(one.resource, value)}</td>`)}
      <td class=${`number ${one.left < 0 ? "refusal" : ""}`}>${one.left < 0 ? "−" : ""}${hours(one.resource, Math.abs(one.left))}</td>
      <td class="soft">${timestamp(one.ends)}</td></tr>`)}
  <//>
  ${data.items.length > MOST && html`<p class="soft">and ${grouped(data.items.length - MOST)} more in <code>queuectl budget</code></p>`}<//>`;
}

/** Decayed usage, which orders what waits. Nothing where it counts nowhere, or no Cohort or ClusterQueue may be read. */
function PastUsage({ params }) {
  const cohorts = useRest("cohorts", { limit: 1000 }).data?.items;
  const queues = useRest("clusterqueues", { limit: 1000 }).data?.items;
  const nodes = cohorts && queues ? [...cohorts.filter((one) => !one.parent), ...cohorts.filter((one) => one.parent)].map((one) => `cohorts/${one.name}`).concat(queues.map((one) => `clusterqueues/${one.name}`)) : [];
  const node = nodes.includes(params.get("of")) ? params.get("of") : nodes[0];
  const asked = useRest(node ? path(...node.split("/"), "pastusage") : null);
  if (!node || asked.data?.halfLifeSeconds === null) return null;
  const title = (each) => each.replace("cohorts/", "Cohort ").replace("clusterqueues/", "ClusterQueue ");
  return html`<${Panel} title="Past usage" note=${asked.data ? `half as much each ${duration(asked.data.halfLifeSeconds)}; what waits comes in this order, all else being equal` : ""}>
    <label class="field">At or below <select value=${node} onChange=${(event) => change({ of: event.target.value }, { replace: true })}>${nodes.map((each) => html`<option value=${each} selected=${each === node}>${title(each)}</option>`)}</select></label>
    <${Asked} of=${asked}>${(found) => html`<${Table} label="Past usage" columns=${[["Name", "grow"], ["Kind", ""], ["Order", "number"], ["Weight", "number"], ["Past usage", "number"], ["Part", "number"]]}>
      ${found.items.slice(0, MOST).map((one) => html`<tr><th scope="row" class="grow"><span style=${{ paddingLeft: `${one.level}rem` }}>${one.namespace && one.kind === "LocalQueue" ? `${one.namespace}/` : ""}${one.name || "unknown"}</span></th><td class="soft">${one.kind}</td>
        <td class="number">${one.order ?? "–"}</td><td class="number soft">${one.weight / 1000}</td><td class="number">${Number(one.used.toPrecision(4)).toLocaleString("en", { maximumSignificantDigits: 4 })}</td><td class="number soft">${percent(one.part, 1)}</td></tr>`)}
    <//>
    ${found.items.length > MOST && html`<p class="soft">and ${grouped(found.items.length - MOST)} more in <code>queuectl share --past-usage</code></p>`}`}<//>
  <//>`;
}

// One ClusterQueue: quota, use over time, loans, its pending queue, what runs.
import { Actions, ofQueue } from "../actions.js";
import { amount, devicesFirst, duration, grouped, unit, yaml } from "../format.js";
import { html, useEffect, useRef, useState } from "../lib.js";
import { Asked, Badge, Bar, Empty, Facts, FREE, Heading, NodeName, Pager, Panel, QueueBadges, Table, usePages } from "../parts.js";
import { ask as ofRest, path, useRest } from "../rest.js";
import { to } from "../route.js";
import { Limits } from "./usage.js";
import { UseOverTime } from "./use.js";
import { WorkloadTable } from "./workloads.js";

const EVERY = 3000;
const PAGE = 100;
/** Workloads of the pending queue whose start is forecast at one time. */
const FORECASTS = 5;

export function ClusterQueue({ name, asOf, params }) {
  const every = { every: asOf ? 0 : EVERY };
  const asked = useRest(path("clusterqueues", name), { asOf }, every);
  const share = useRest(path("clusterqueues", name, "share"), { asOf }, { every: asOf ? 0 : 2 * EVERY });
  return html`<${Heading} kind="ClusterQueue" title=${name}
    aside=${asked.data && !asOf && html`<${Actions} where=${path("clusterqueues", name)} actions=${ofQueue(asked.data)} done=${asked.reload} />`}>${asked.data && html`<${QueueBadges} queue=${asked.data} />`}<//>
    <${Asked} of=${asked} rows=${8}>${(queue) => html`
    ${!queue.active && html`<p class="notice bad">${queue.condition.message}</p>`}
    ${queue.warnings.map((one) => html`<p class="notice"><b>${one.code}</b> ${one.message}</p>`)}
    <${Facts} rows=${[
      ["Pending", grouped(queue.pending)], ["Admitted", grouped(queue.admitted)], ["Queueing strategy", queue.queueingStrategy],
      ["Dominant share", share.data && (share.data.share === null ? null : `${share.data.share / 10}%${share.data.dominantResource ? ` by ${share.data.dominantResource}` : ""}`)],
      ["Fair-sharing weight", share.data?.fairSharing ? share.data.weight / 1000 : null],
    ]} />
    <${Quota} queue=${queue} share=${share.data} />
    ${queue.spec && html`<${Policy} name=${name} spec=${queue.spec} />`}
    <${Limits} clusterqueue=${name} asOf=${asOf} />
    <${UseOverTime} name=${name} params=${params} asOf=${asOf} />
    <${Loans} share=${share.data} />
    <${Line} queue=${queue} asOf=${asOf} />
    <${Running} queue=${queue} asOf=${asOf} />`}<//>`;
}

function Quota({ queue, share }) {
  const accounts = new Map((share?.accounts ?? []).map((one) => [`${one.flavor} ${one.resource}`, one]));
  const cells = (queue.spec?.resourceGroups ?? []).flatMap((group) => group.flavors.flatMap((flavor) => flavor.resources.map((one) => ({ ...one, flavor: flavor.name }))));
  const limits = new Map(cells.map((one) => [`${one.flavor} ${one.name}`, one]));
  const most = (resource) => Math.max(...queue.flavors.filter((cell) => cell.resource === resource).map((cell) => Math.max(cell.nominal, cell.used)));
  return html`<${Panel} title="Quota">
    ${!queue.flavors.length && html`<${Empty}>This queue has no quota.<//>`}
    <${Table} label="Quota" columns=${[["Flavor", ""], ["Resource", ""], ["Use", "grow"], ["Used", "number"], ["Nominal", "number"], ["Borrowed", "number"], ["Lent", "number"], [FREE, "number"], [html`<abbr title="What the queue would use if all used in proportion to their weights">Fair</abbr>`, "number wide"]]}>
      ${[...queue.flavors].sort((a, b) => devicesFirst(a.resource, b.resource)).map((cell) => {
        const account = accounts.get(`${cell.flavor} ${cell.resource}`);
        const limit = limits.get(`${cell.flavor} ${cell.resource}`) ?? {};
        const upTo = (value) => (value === undefined || value === null ? "" : html` <span class="soft">of ${value}</span>`);
        const show = (value) => (value ? amount(cell.resource, value) : html`<span class="faint">–</span>`);
        return html`<tr><th scope="row">${cell.flavor}</th><td>${unit(cell.resource)}</td>
          <td class="grow"><${Bar} ...${cell} scale=${most(cell.resource)} /></td>
          <td class="number">${amount(cell.resource, cell.used)}</td>
          <td class="number soft">${amount(cell.resource, cell.nominal)}${cell.effective !== cell.nominal ? html` <${Badge} tone="wait" title="What counts of it while nodes are missing">${amount(cell.resource, cell.effective)}<//>` : ""}</td>
          <td class="number borrowing">${show(cell.borrowed)}${upTo(limit.borrowingLimit)}</td><td class="number">${show(cell.lent)}${upTo(limit.lendingLimit)}</td>
          <td class="number">${amount(cell.resource, cell.free)}</td><td class="number wide soft">${account?.fair === undefined || account?.fair === null ? "–" : amount(cell.resource, account.fair)}</td></tr>`;
      })}
    <//>
  <//>`;
}

/** What the object says, with the defaults of the fields that decide who waits and who is evicted. */
function Policy({ name, spec }) {
  const { preemption = {}, flavorFungibility = {}, maxExecutionTime = {}, waitForPodsReady = {} } = spec;
  const borrow = preemption.borrowWithinCohort ?? {};
  const seconds = (/** @type {Record<string, any>} */ of) => Object.entries(of).filter(([, value]) => typeof value === "number" && value > 0).map(([key, value]) => `${key.replace("TimeoutSeconds", "")} ${duration(value)}`).join(", ");
  return html`<${Panel} title="Policy" aside=${html`<a href=${to(["plan"], { clusterqueue: name })}>Plan a change</a>`}><${Facts} rows=${[
    ["Namespaces", selected(spec.namespaceSelector)],
    ["Preempts in its own queue", preemption.withinClusterQueue ?? "Never"],
    ["Reclaims in its cohort", preemption.reclaimWithinCohort ?? "Never"],
    ["Preempts while it borrows", `${borrow.policy ?? "Never"}${borrow.maxPriorityThreshold === undefined ? "" : ` up to priority ${borrow.maxPriorityThreshold}`}`],
    ["Runs before it is preempted", seconds(preemption.minRunTime ?? {})],
    ["Flavor that needs borrowing", flavorFungibility.whenCanBorrow ?? "MayStopSearch"],
    ["Flavor that needs preemption", flavorFungibility.whenCanPreempt ?? "TryNextFlavor"],
    ["Head that can never run", spec.queueingStrategy === "StrictFIFO" ? (spec.headCanNeverRun ?? "Block") : ""],
    ["Run time", `${seconds(maxExecutionTime)}${maxExecutionTime.onExceeded === "Fail" ? ", then fails" : ""}`],
    ["Pods must be ready", seconds(waitForPodsReady)],
    ["Stopped because", spec.stopReason],
  ]} />
  <details class="alternative"><summary>As YAML</summary><pre class="scroll" tabindex="0">${yaml(spec)}</pre></details><//>`;
}

/** @param {any} selector of labels */
function selected(selector) {
  if (!selector) return "none";
  const labels = Object.entries(selector.matchLabels ?? {}).map(([key, value]) => `${key}=${value}`);
  const rules = (selector.matchExpressions ?? []).map((one) => `${one.key} ${one.operator} ${(one.values ?? []).join(" ")}`.trim());
  return [...labels, ...rules].join(", ") || "all";
}

function Loans({ share }) {
  const loans = (share?.accounts ?? []).flatMap((one) => [
    ...one.borrowedFrom.map((loan) => ({ ...one, text: "borrowed from", node: loan.node, size: loan.amount })),
    ...one.lentTo.map((loan) => ({ ...one, text: "lent to", node: loan.node, size: loan.amount })),
  ]);
  if (!loans.length) return null;
  return html`<${Panel} title="Loans now"><ul class="plain">${loans.map((loan) => html`<li>
    <b class="number">${amount(loan.resource, loan.size)} ${unit(loan.resource)}</b> <span class="soft">of ${loan.flavor}</span> ${loan.text} <${NodeName} brief node=${loan.node} /></li>`)}</ul><//>`;
}

function Line({ queue, asOf }) {
  const pages = usePages(String(asOf));
  const filter = { clusterqueue: queue.name, phase: "Pending", order: "position", asOf, limit: PAGE, next: pages.next };
  const asked = useRest("workloads", filter, { every: asOf ? 0 : EVERY });
  const starts = useStarts();
  const first = (asked.data?.items ?? []).slice(0, FORECASTS);
  const forecast = !asOf && first.length > 0 && html`<button disabled=${starts.busy} onClick=${() => starts.ask(first)}>${starts.busy ? "Forecasting…" : `Forecast ${first.length === 1 ? "its start" : `the first ${first.length}`}`}</button>`;
  return html`<${Panel} title="Pending queue" note=${`${grouped(queue.pending)} pending, in the order in which they are admitted`} aside=${forecast}>
    <${Asked} of=${asked}>${(page) => html`
      ${page.items.length ? html`<${WorkloadTable} items=${page.items} label="Pending queue" line starts=${starts.found} asOf=${asOf} />` : html`<${Empty}>Nothing waits${queue.pending ? " that you may read" : ""}.<//>`}
      ${(page.items.length > 0 || pages.number > 1) && html`<${Pager} pages=${pages} next=${page.next} count=${page.items.length} whole=${queue.pending} noun="workload" />`}`}<//>
  <//>`;
}

/** Forecasts of starts by UID, on request: REST plays the time to come for each, so one is asked after the other. */
function useStarts() {
  const [state, setState] = useState({ found: /** @type {Map<string, any> | null} */ (null), busy: false });
  const turn = useRef(0);
  useEffect(() => () => void turn.current++, []);
  const ask = async (/** @type {any[]} */ items) => {
    const mine = ++turn.current;
    const found = new Map();
    for (const one of items) {
      setState({ found: new Map(found), busy: true });
      found.set(one.uid, await ofRest(path("workloads", one.namespace, one.kind, one.name, "eta")).catch((problem) => ({ unknown: problem.message })));
      if (mine !== turn.current) return;
    }
    setState({ found, busy: false });
  };
  return { ...state, ask };
}

function Running({ queue, asOf }) {
  const pages = usePages(String(asOf));
  const filter = { clusterqueue: queue.name, phase: "Admitted", asOf, limit: PAGE, next: pages.next };
  const asked = useRest("workloads", filter, { every: asOf ? 0 : EVERY });
  return html`<${Panel} title="Admitted">
    <${Asked} of=${asked}>${(page) => html`
      ${page.items.length ? html`<${WorkloadTable} items=${page.items} label="Admitted workloads" asOf=${asOf} />` : html`<${Empty}>Nothing is admitted${queue.admitted ? " that you may read" : ""}.<//>`}
      ${(page.items.length > 0 || pages.number > 1) && html`<${Pager} pages=${pages} next=${page.next} count=${page.items.length} noun="workload" />`}`}<//>
  <//>`;
}


// One workload: why it waits, what would help, its life, and where its wait went.
import { Actions, ofWorkload } from "../actions.js";
import { amount, amounts, between, clock, counted, deviceTime, duration, grouped, percent, timestamp, total, unit } from "../format.js";
import { decisionText, lifeOf } from "../facts.js";
import { html, useEffect, useRef } from "../lib.js";
import { Asked, Badge, Empty, Facts, Failure, Heading, Marked, Named, NodeName, Panel, PhaseBadge, QueueLink, ReasonBadge, Table, Time, VerdictBadge, withoutCode, WorkloadName } from "../parts.js";
import { now, path, useRest } from "../rest.js";
import { to } from "../route.js";
import { Counterfactuals, Eta, Exposure } from "./outlook.js";

const EVERY = 3000;
const PAGE = 1000;

export function Workload({ namespace, kind, name, asOf }) {
  const one = path("workloads", namespace, kind, name);
  const asked = useRest(one, { asOf }, { every: asOf ? 0 : EVERY });
  const over = asked.data && ["Finished", "Deleted"].includes(asked.data.phase);
  // When this changes there are new decisions.
  const version = asked.data ? `${asked.data.phase} ${asked.data.attempts} ${asked.data.reason?.code} ${asked.data.reason?.limit}` : null;
  const history = useRest(version && `${one}/history`, { limit: PAGE, asOf }, { every: asOf || over ? 0 : 4 * EVERY });
  const waited = useRest(version && `${one}/waited`, { asOf }, { every: asOf || over ? 0 : 4 * EVERY });
  const former = useRef(version);
  useEffect(() => {
    if (former.current && version && former.current !== version) {
      history.reload();
      waited.reload();
    }
    former.current = version;
  }, [version]);
  return html`<${Heading} kind=${`${kind} in namespace ${namespace}`} title=${name}
    aside=${asked.data && !asOf && html`<${Actions} where=${one} actions=${ofWorkload(asked.data)} done=${asked.reload} />`}>${asked.data && html`<${Badges} of=${asked.data} />`}<//>
    <${Asked} of=${asked} rows=${8}>${(found) => html`
    ${asked.problem && html`<${Failure} problem=${asked.problem} />`}
    <${Summary} of=${found} />
    ${found.reason && html`<${Why} of=${found} />`}
    ${found.phase === "Pending" && !asOf && html`<div class="two even gap"><${Counterfactuals} one=${one} of=${found} done=${asked.reload} /><${Eta} one=${one} /></div>`}
    ${found.phase === "Admitted" && html`<${Exposure} one=${one} asOf=${asOf} />`}
    <${Asked} of=${history} rows=${3}>${(page) => html`<${Life} of=${found} decisions=${page.items} more=${page.next} asOf=${asOf} />`}<//>
    ${waited.data && html`<${Waited} of=${waited.data} />`}
    <${Pods} of=${found} />
    ${history.data && html`<${History} decisions=${history.data.items} />`}`}<//>`;
}

/** Codes whose `available` is what there is at most, whatever ends. */
const AT_MOST = new Set(["ExceedsMaxQuota", "ExceedsResourceQuota", "OutsideUsageLimit"]);

const Badges = ({ of }) => html`<${PhaseBadge} phase=${of.phase} end=${of.end} />
  ${of.reason && html`<${ReasonBadge} reason=${of.reason} />`}
  ${Object.entries(of.links).map(([title, url]) => html`<a href=${url} target="_blank" rel="noreferrer">${title}</a>`)}
  ${of.position !== null && of.reason?.family !== "never" && html`<${Badge}>Position ${grouped(of.position)} of ${grouped(of.line ?? of.position)}<//>`}`;

const Summary = ({ of }) => html`<${Facts} rows=${[
  ["LocalQueue", html`<a href=${to(["localqueues", of.namespace, of.queue])}>${of.queue}</a>`],
  ["ClusterQueue", html`<${QueueLink} name=${of.clusterQueue} />`],
  ["Priority", of.priority],
  ["Created", html`<${Time} at=${of.createdAt} />${of.submitter ? ` by ${of.submitter}` : ""}`],
  ["Admitted", of.admittedAt && html`<${Time} at=${of.admittedAt} />, attempt ${of.attempt}`],
  ["Booked on", of.booked && Object.entries(of.booked).map(([key, value]) => `${key} ${value ?? "unassigned"}`).join(", ")],
  ["Holds", of.admission && amounts(total(of.admission.podSets))],
  ["Started", of.end?.startedAt && html`<${Time} at=${of.end.startedAt} />`],
  ["Ended", of.end && html`<${Time} at=${of.end.endedAt} />${of.end.attempts.length ? `, held quota for ${duration(of.end.heldSeconds)}` : ""}`],
  ["Held", deviceTime(of.end?.resourceSeconds)],
  ["Pods", of.podsReady === null ? of.pods : `${of.podsReady} of ${of.pods} ready`],
  ["Pods missing", of.podsMissing],
]} />`;

function Why({ of }) {
  const { reason } = of;
  const size = (value) => (value === null || reason.resource === null ? null : `${amount(reason.resource, value)} ${unit(reason.resource)}${reason.limit === "spec.hours" ? " hours" : ""}`);
  return html`<${Panel} title=${of.phase === "Admitted" ? "Warning" : "Why it waits"}>
    <p class="lead">${reason.message}</p>
    ${of.help && html`<p class="help"><${Marked} text=${of.help} /></p>`}
    <${Facts} rows=${[
      ["Bound by", reason.limit && html`${reason.limit} ${reason.node && html`of <${NodeName} node=${reason.node} />`}`],
      ["Flavor", reason.flavor], ["Requested", size(reason.requested)], [AT_MOST.has(reason.code) ? "At most" : "Available", size(reason.available)], ["Short by", size(reason.shortBy)],
      ["Until", reason.until && html`<${Time} at=${reason.until} />`], ["Preempted by", reason.by && html`<${Named} who=${reason.by} />`],
    ]} />
    ${reason.others.length > 0 && html`<h3>Other flavors that were tried</h3><ul class="plain">${reason.others.map((other) => html`<li><${ReasonBadge} reason=${other} /> <span class="soft">${withoutCode(other)}</span></li>`)}</ul>`}
    <div class="two even">
      ${of.holders.length > 0 && html`<div><h3>Held by</h3><${Holders} holders=${of.holders} resource=${reason.resource} />${of.moreHolders > 0 && html`<p class="soft">and ${grouped(of.moreHolders)} more</p>`}</div>`}
      ${of.ahead.length > 0 && html`<div><h3>Ahead in the pending queue</h3><ul class="plain">${of.ahead.map((one) => html`<li><${WorkloadName} of=${one} /></li>`)}</ul></div>`}
    </div>
    ${of.lent && html`<p>${`${size(of.lent.amount) ?? ""} of its queue's own quota is lent to `}${of.lent.borrowers.map((one, place) => html`${place > 0 && ", "}<${NodeName} node=${one.clusterQueue && `ClusterQueue/${one.clusterQueue}`} /> (${size(one.amount)})`)}.</p>`}
  <//>`;
}

/** The most first, each beside the largest. */
function Holders({ holders, resource }) {
  const most = Math.max(...holders.map((one) => one.amount));
  return html`<ul class="holders">${holders.map((one) => html`<li>
    <span class="number"><b>${resource ? `${amount(resource, one.amount)} ${unit(resource)}` : ""}</b></span>
    <span class="meter" aria-hidden="true"><i style=${{ width: percent(one.amount, most) }}></i></span>
    <${WorkloadName} of=${one} /> <span class="soft number">since ${clock(one.since)}</span></li>`)}</ul>`;
}

const STATES = { wait: "waits", run: "runs", end: "pods end" };

function Life({ of, decisions, more, asOf }) {
  const spans = lifeOf(decisions, of.createdAt, new Date(asOf ?? now()));
  if (!spans.length) return null;
  const whole = between(spans[0].from, spans[spans.length - 1].to) || 1;
  const lasts = (span) => duration(between(span.from, span.to));
  const note = `${duration(whole)} from ${timestamp(spans[0].from)}${more ? `, the first ${grouped(PAGE)} decisions` : ""}`;
  return html`<${Panel} title="Life" note=${note}>
    <div class="life" role="img" aria-label=${`${counted(spans.length, "part")}: the table below has each`}>
      ${spans.map((span) => html`<span class=${span.state} style=${{ flexGrow: between(span.from, span.to) / whole }} title=${`${span.what}, ${lasts(span)}\n${span.why}`}><em><b>${span.what}</b> ${lasts(span)}</em></span>`)}
    </div>
    <ul class="legend keys" aria-hidden="true">${Object.entries(STATES).map(([state, text]) => html`<li><i class="life-${state}"></i>${text}</li>`)}</ul>
    <details class="alternative" open=${spans.length <= 8}><summary>As a table</summary>
      <${Table} label="Life" columns=${[["From", ""], ["State", ""], ["For", "number"], ["What", ""], ["Why", "grow"]]}>
        ${spans.map((span) => html`<tr><td class="time">${timestamp(span.from)}</td><td><i class=${`dot life-${span.state}`}></i>${STATES[span.state]}</td><td class="number">${lasts(span)}</td><td>${span.what}</td><td class="grow text soft">${span.why}</td></tr>`)}
      <//></details>
  <//>`;
}

function Waited({ of }) {
  if (!of.parts.length) return null;
  const note = `waited ${duration(of.waitedSeconds)}, ran ${duration(of.ranSeconds)}, pods ended ${duration(of.evictingSeconds)}`;
  return html`<${Panel} title="Where the wait went" note=${note}>
    <ul class="shares">${of.parts.map((part) => html`<li>
      <span class="number"><b>${duration(part.seconds)}</b></span><span class="number soft">${percent(part.seconds, of.waitedSeconds)}</span>
      <span class="meter" aria-hidden="true"><i style=${{ width: percent(part.seconds, of.waitedSeconds) }}></i></span><span>${part.text}</span></li>`)}</ul>
  <//>`;
}

function Pods({ of }) {
  if (!of.podSets?.length) return null;
  return html`<${Panel} title="Pods it requests"><${Table} label="Pods it requests" columns=${[["Podset", ""], ["Pods", "number"], ["Each", "grow"], ["Flavors", ""]]}>
    ${of.podSets.map((set) => {
      const given = of.admission?.podSets.find((one) => one.name === set.name);
      return html`<tr><th scope="row">${set.name}</th><td class="number">${given ? given.count : set.count}${set.minCount !== null && set.minCount !== set.count ? html` <span class="soft">at least ${set.minCount}</span>` : ""}</td>
        <td class="grow">${amounts(set.requests)}</td><td>${given ? [...new Set(Object.values(given.flavors))].join(", ") : "–"}</td></tr>`;
    })}
  <//><//>`;
}

function History({ decisions }) {
  if (!decisions.length) return html`<${Panel} title="Decisions"><${Empty}>None yet.<//><//>`;
  return html`<${Panel} title="Decisions"><${Table} label="Decisions on it" columns=${[["Sequence", "number wide"], ["Time", ""], ["Decision", ""], ["Attempt", "number"], ["Why", "grow"]]}>
    ${[...decisions].reverse().slice(0, 100).map((row) => html`<tr key=${row.sequence}><td class="number wide soft">${grouped(row.sequence)}</td><td class="time">${timestamp(row.time)}</td><td><${VerdictBadge} verdict=${row.verdict} /></td><td class="number soft">${row.attempt ?? "–"}</td>
      <td class="grow text">${row.reason?.by ? html`${row.reason.code}${row.reason.cause ? ` (${row.reason.cause})` : ""} by <${Named} who=${row.reason.by} />` : decisionText(row)}</td></tr>`)}
  <//><//>`;
}

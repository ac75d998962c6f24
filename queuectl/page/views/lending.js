// Which queue lent what to which, now and over a time.
import { amount, counted, devicesFirst, grouped, hours, unit } from "../format.js";
import { byQueue, HIDDEN, lendingMatrix } from "../facts.js";
import { html, useEffect, useMemo, useState } from "../lib.js";
import { Asked, Choice, Download, Empty, Failure, Heading, Loading, NodeName, Panel } from "../parts.js";
import { ask, hoursAgo, path, Problem, useRest } from "../rest.js";
import { change } from "../route.js";
import { UseOfCohort } from "./use.js";

const SINCE = [["now", "Now"], ["1h", "1 hour"], ["24h", "24 hours"], ["7d", "7 days"], ["30d", "30 days"]];
const HOURS = { "1h": 1, "24h": 24, "7d": 168, "30d": 720 };
const MOST = 24;

export function Lending({ params, asOf }) {
  const range = params.get("range") in HOURS ? params.get("range") : "now";
  const queues = useRest("clusterqueues", { limit: 1000, asOf });
  return html`<${Heading} title="Lending" />
    <${Asked} of=${queues}>${(page) => html`<${Matrix} queues=${page.items} range=${range} params=${params} asOf=${asOf} />`}<//>`;
}

/** The shares of the queues of a cohort. Callers that may not read the cohort read those of single queues, one after the other.
 * @param {string | undefined} cohort
 * @param {string[]} names
 * @param {string} range
 * @param {string | null} asOf */
function useShares(cohort, names, range, asOf) {
  const key = JSON.stringify([cohort, names, range, asOf]);
  const [seen, setSeen] = useState({ key, shares: /** @type {any[]} */ ([]), problem: /** @type {Problem | null} */ (null), done: false });
  const since = useMemo(() => (range === "now" ? null : hoursAgo(HOURS[range], asOf)), [range, asOf]);
  useEffect(() => {
    if (cohort === undefined) return;
    const abort = new AbortController();
    /** @type {any[]} */
    let shares = [];
    const each = async () => {
      for (const name of names.slice(0, MOST)) {
        shares = [...shares, await ask(path("clusterqueues", name, "share"), { since, asOf }, abort.signal)];
        setSeen({ key, shares, problem: null, done: false });
      }
    };
    const read = async () => {
      try {
        shares = byQueue(await ask(path("cohorts", cohort, "share"), { since, asOf }, abort.signal));
      } catch (error) {
        if (!(error instanceof Problem) || error.status !== 404) throw error;
        await each();
      }
    };
    read().then(
      () => abort.signal.aborted || setSeen({ key, shares, problem: null, done: true }),
      (error) => abort.signal.aborted || setSeen({ key, shares, problem: error instanceof Problem ? error : new Problem(0, String(error)), done: true }),
    );
    return () => abort.abort();
  }, [key]);
  return seen.key === key ? seen : { shares: [], problem: null, done: false };
}

function Matrix({ queues, range, params, asOf }) {
  const cohorts = [...new Set(queues.flatMap((one) => one.cohort ?? []))].sort();
  const cohort = cohorts.includes(params.get("cohort")) ? params.get("cohort") : cohorts[0];
  const among = queues.filter((one) => one.cohort === cohort);
  const { shares, problem, done } = useShares(cohort, among.map((one) => one.name), range, asOf);
  const cells = [...new Set(among.flatMap((one) => one.flavors.map((cell) => `${cell.flavor} ${cell.resource}`)))].sort(devicesFirst);
  const cell = cells.includes(params.get("cell")) ? params.get("cell") : cells[0];
  if (!cohorts.length) return html`<${Empty}>There is no cohort whose queues you may read: nothing is lent.<//>`;
  const pick = (label, values, value, name) => html`<label class="field">${label} <select value=${value} onChange=${(event) => change({ [name]: event.target.value }, { replace: true })}>
    ${values.map((each) => html`<option value=${each} selected=${each === value}>${each.replace(" ", " · ")}</option>`)}</select></label>`;
  return html`<${Panel} title="Lender and borrower" note=${range === "now" ? "amounts" : "resource-hours"}
      aside=${html`<${Choice} label="Time" values=${SINCE} value=${range} onChange=${(each) => change({ range: each }, { replace: true })} />`}>
    <div class="fields">${cohorts.length > 1 && pick("Cohort", cohorts, cohort, "cohort")}${pick("Flavor and resource", cells, cell, "cell")}</div>
    ${problem && html`<${Failure} problem=${problem} />`}
    ${!done && html`<p class="soft" role="status">${grouped(shares.length)} of ${counted(among.length, "ClusterQueue")} read</p>${!shares.length && html`<${Loading} />`}`}
    ${shares.length > 0 && html`<${Cells} shares=${shares} cell=${cell} range=${range} done=${done} />`}
    ${done && shares.length === MOST && among.length > MOST && html`<p class="soft">The first ${MOST} of ${grouped(among.length)} ClusterQueues of this cohort.</p>`}
  <//>
  ${cell && html`<${UseOfCohort} name=${cohort} hours=${HOURS[range] ?? 24} cell=${cell} asOf=${asOf} />`}`;
}

function Cells({ shares, cell, range, done }) {
  const resource = cell.split(" ")[1];
  const { lenders, borrowers, amounts } = lendingMatrix(shares, cell, range === "now" ? "accounts" : "statement");
  if (!amounts.size) return done ? html`<${Empty}>No ${unit(resource)} ${range === "now" ? "is" : "was"} lent.<//>` : null;
  const most = Math.max(...amounts.values());
  const lent = (lender, borrower) => amounts.get(`${lender} ${borrower}`) ?? 0;
  const sum = (values) => values.reduce((all, one) => all + one, 0);
  const text = (value) => (range === "now" ? amount(resource, value) : hours(resource, value));
  const name = (node) => html`<${NodeName} brief node=${node === HIDDEN ? null : node} />`;
  const plain = (value) => (range === "now" ? value : hours(resource, value).replaceAll(",", ""));
  const rows = lenders.flatMap((lender) => borrowers.filter((borrower) => lent(lender, borrower) > 0).map((borrower) => [lender, borrower, ...cell.split(" "), plain(lent(lender, borrower))]));
  return html`<${Download} name="lending.csv" head=${["lender", "borrower", "flavor", "resource", range === "now" ? "amount" : "hours"]} rows=${rows} />
  <div class="scroll" tabindex="0" role="region" aria-label="Lending matrix"><table class="matrix">
    <caption class="hidden">Rows lend to columns</caption>
    <thead><tr><th scope="col"><span class="soft">lends ↓ to →</span></th>${borrowers.map((one) => html`<th scope="col">${name(one)}</th>`)}<th scope="col">Total</th></tr></thead>
    <tbody>${lenders.map((lender) => html`<tr><th scope="row">${name(lender)}</th>${borrowers.map((borrower) => {
      const value = lent(lender, borrower);
      return html`<td class="number">${value > 0 ? html`<span class="heat"><i style=${{ opacity: 0.15 + (0.6 * value) / most }}></i><b>${text(value)}</b></span>` : html`<span class="faint">–</span>`}</td>`;
    })}<td class="number total"><b>${text(sum(borrowers.map((one) => lent(lender, one))))}</b></td></tr>`)}
    <tr class="total"><th scope="row">Total</th>${borrowers.map((one) => html`<td class="number">${text(sum(lenders.map((lender) => lent(lender, one))))}</td>`)}<td class="number">${text(sum([...amounts.values()]))}</td></tr></tbody></table></div>`;
}

// What the views compute from documents of REST. Pure.
import { devicesFirst, deviceTime } from "./format.js";

/** @typedef {{flavor: string, resource: string, nominal: number, effective: number, used: number, free: number, borrowed?: number, lent?: number}} Quota */
/** @typedef {{name: string, cohort?: string | null, parent?: string | null, pending: number, admitted: number,
 *   active: boolean, condition: {reason: string, message: string}, flavors: Quota[]}} Node */
/** @typedef {{kind: "Cohort" | "ClusterQueue", node: Node | null, name: string, depth: number}} Row */

/** Cohorts and ClusterQueues as rows of a tree, each below its parent; ClusterQueues without a cohort last.
 * A cohort that the caller may not read has a row with its name only.
 * @param {Node[]} queues
 * @param {Node[]} cohorts
 * @returns {Row[]} */
export function treeRows(queues, cohorts) {
  const known = new Map(cohorts.map((one) => [one.name, one]));
  const names = new Set([...known.keys(), ...queues.flatMap((one) => one.cohort ?? [])]);
  /** @param {string} name */
  const parent = (name) => {
    const above = known.get(name)?.parent;
    return above && names.has(above) ? above : null;
  };
  /** @type {Row[]} */
  const rows = [];
  const done = new Set();
  /** @param {string} name
   * @param {number} depth */
  const add = (name, depth) => {
    if (done.has(name)) return; // a cycle of cohorts is reported in their condition
    done.add(name);
    rows.push({ kind: "Cohort", node: known.get(name) ?? null, name, depth });
    for (const child of sorted([...names].filter((one) => parent(one) === name))) add(child, depth + 1);
    for (const queue of queues.filter((one) => one.cohort === name)) rows.push({ kind: "ClusterQueue", node: queue, name: queue.name, depth: depth + 1 });
  };
  for (const name of sorted([...names].filter((one) => parent(one) === null))) add(name, 0);
  for (const name of sorted([...names])) add(name, 0);
  for (const queue of queues.filter((one) => !one.cohort)) rows.push({ kind: "ClusterQueue", node: queue, name: queue.name, depth: 0 });
  return rows;
}

/** @param {string[]} names */
const sorted = (names) => names.sort();

/** Resources of these quotas, devices first.
 * @param {Node[]} nodes */
export function resourcesOf(nodes) {
  const names = new Set(nodes.flatMap((one) => one.flavors.map((cell) => cell.resource)));
  return [...names].sort().sort(devicesFirst);
}

/** @typedef {{state: "wait" | "run" | "end", from: Date, to: Date, what: string, why: string, sequence: number | null}} Span */

/** The life of a workload from its decisions, oldest first: waits, runs, evictions. A wait is cut where its reason changes.
 * @param {any[]} decisions
 * @param {string} createdAt
 * @param {Date} until of a life that is not over
 * @returns {Span[]} */
export function lifeOf(decisions, createdAt, until) {
  /** @type {Span[]} */
  const spans = [];
  let over = false;
  /** @type {Span} */
  let now = { state: "wait", from: new Date(createdAt), to: until, what: "Created", why: "not observed yet", sequence: null };
  /** @param {any} row
   * @param {Span["state"]} state
   * @param {string} what
   * @param {string} why */
  const begin = (row, state, what, why) => {
    const at = new Date(row.time);
    if (at > now.from) spans.push({ ...now, to: at });
    now = { state, from: at < now.from ? now.from : at, to: until, what, why, sequence: row.sequence };
  };
  for (const row of decisions) {
    const why = row.reason?.message ?? row.details?.detail ?? row.details?.outcome ?? "";
    if (row.verdict === "Admitted") begin(row, "run", `Attempt ${row.attempt}`, `ClusterQueue ${row.details?.clusterQueue ?? ""}`);
    else if (row.verdict === "Evicted") begin(row, "end", row.reason?.code ?? "Evicted", why);
    else if (row.verdict === "Queued") begin(row, now.state === "run" ? "run" : "wait", now.state === "run" ? now.what : "Queued", now.state === "run" ? now.why : "not evaluated yet");
    else if (row.verdict === "Released") begin(row, "wait", "Released", "not evaluated yet");
    else if (row.verdict === "Pending") begin(row, "wait", row.reason?.code ?? "Pending", why);
    else if (row.verdict === "Retired") {
      begin(row, "wait", "Retired", why);
      over = true;
    }
  }
  if (!over && until > now.from) spans.push({ ...now, to: until });
  return spans;
}

/** The text of a decision in a list.
 * @param {any} row */
export function decisionText(row) {
  const details = row.details ?? {};
  if (row.reason) return row.reason.message;
  if (row.verdict === "Admitted") return `ClusterQueue ${details.clusterQueue ?? ""}`;
  if (row.verdict === "Queued") return `LocalQueue ${details.queue}${details.clusterQueue ? `, ClusterQueue ${details.clusterQueue}` : ""}, priority ${details.priority}`;
  if (row.verdict === "Configured") return details.spec === null || details.spec === undefined ? "deleted" : details.author ? `by ${details.author}` : "";
  const held = deviceTime(row.resourceSeconds);
  return [[details.outcome, details.detail].filter(Boolean).join(": "), held && `held ${held}`].filter(Boolean).join(", ");
}

/** The share of a cohort as those of its ClusterQueues.
 * @param {any} cohort
 * @returns {any[]} */
export function byQueue(cohort) {
  const names = new Set([...cohort.accounts, ...(cohort.statement?.accounts ?? [])].map((one) => one.clusterQueue));
  const of = (/** @type {any[]} */ accounts, /** @type {string} */ name) => accounts.filter((one) => one.clusterQueue === name);
  return sorted([...names]).map((name) => ({ name, accounts: of(cohort.accounts, name), statement: cohort.statement && { accounts: of(cohort.statement.accounts, name) } }));
}

/** Lender x borrower in one cell, from the shares of ClusterQueues.
 * @param {any[]} shares
 * @param {string} cell flavor and resource with a space between
 * @param {"accounts" | "statement"} which
 * @returns {{lenders: string[], borrowers: string[], amounts: Map<string, number>}} */
export function lendingMatrix(shares, cell, which) {
  /** @type {Map<string, number>} */
  const amounts = new Map();
  const lenders = new Set(), borrowers = new Set();
  /** @param {string | null} from
   * @param {string | null} to
   * @param {number} amount */
  const add = (from, to, amount) => {
    if (amount <= 0) return;
    const [lender, borrower] = [from ?? HIDDEN, to ?? HIDDEN];
    lenders.add(lender);
    borrowers.add(borrower);
    amounts.set(`${lender} ${borrower}`, Math.max(amount, amounts.get(`${lender} ${borrower}`) ?? 0));
  };
  for (const share of shares) {
    const accounts = which === "accounts" ? share.accounts : (share.statement?.accounts ?? []);
    for (const account of accounts.filter((one) => `${one.flavor} ${one.resource}` === cell)) {
      for (const loan of account.borrowedFrom) add(loan.node, `ClusterQueue/${share.name}`, loan.amount);
      for (const loan of account.lentTo) add(`ClusterQueue/${share.name}`, loan.node, loan.amount);
    }
  }
  return { lenders: sorted([...lenders]), borrowers: sorted([...borrowers]), amounts };
}

export const HIDDEN = "not shown to you";

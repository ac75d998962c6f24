// Small parts that several views use.
import { amount, counted, grouped, percent, timestamp, unit } from "./format.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "./lib.js";
import { arrived, to, toNode, toWorkload } from "./route.js";

const PHASES = { Pending: "wait", Admitted: "ok", Evicting: "bad", Finished: "calm", Deleted: "calm" };
const FAMILIES = { never: "bad", "not yet": "wait", held: "calm", evicted: "bad" };
const VERDICTS = { Admitted: "ok", Evicted: "bad", Pending: "wait", Shrunk: "wait" };

/** @param {{tone?: string, children?: any, title?: string}} props */
export const Badge = ({ tone = "calm", title, children }) => html`<span class="badge ${tone}" title=${title}>${children}</span>`;

const OUTCOMES = { Succeeded: "ok", Failed: "bad", TimedOut: "bad" };

/** The phase of a workload; of one that is over, how it ended. */
export const PhaseBadge = ({ phase, end }) => end ? html`<${Badge} tone=${OUTCOMES[end.outcome]} title=${phase}>${end.outcome}<//>` : html`<${Badge} tone=${PHASES[phase]}>${phase}<//>`;
export const ReasonBadge = ({ reason }) => html`<${Badge} tone=${FAMILIES[reason.family]} title=${reason.family}>${reason.code}<//>`;
export const VerdictBadge = ({ verdict }) => html`<${Badge} tone=${VERDICTS[verdict]}>${verdict}<//>`;

/** The message of a reason without its code, for a place where the code stands before it. */
export const withoutCode = (reason) => reason.message.replace(new RegExp(`^${reason.code}:? ?`), "");

/** A text with commands between backticks. */
export const Marked = ({ text }) => html`${text.split("`").map((part, place) => (place % 2 ? html`<code>${part}</code>` : part))}`;

/** The name of a workload as a link; a text in its place if the caller may not read it. */
export function WorkloadName({ of }) {
  const address = toWorkload(of);
  if (address === null) return html`<span class="soft">a workload not shown to you</span>`;
  return html`<a class="name" href=${address} title=${of.name}><span class="soft">${of.namespace}/${of.kind.toLowerCase()}/</span>${of.name}</a>`;
}

/** A workload written as namespace/kind/name. */
export function Named({ who }) {
  const [namespace, kind, name] = (who ?? "").split("/");
  if (name === undefined) return who ? html`<span>${who}</span>` : html`<${WorkloadName} of=${{ name: null }} />`;
  return html`<${WorkloadName} of=${{ namespace, kind, name }} />`;
}

/** An object of the tree written as ClusterQueue/team-a. `brief`: the link of a ClusterQueue has its name only. */
export function NodeName({ node, brief }) {
  if (!node) return html`<span class="soft">objects not shown to you</span>`;
  const address = toNode(node);
  const [kind, name] = node.split("/");
  return html`<span class="node">${!(brief && address) && html`<span class="soft">${kind}/</span>`}${address ? html`<a href=${address}>${name}</a>` : name}</span>`;
}

/** The title of a column. */
export const FREE = html`<abbr title="The largest request of a new workload that starts now without preemption">Free</abbr>`;

export const QueueLink = ({ name }) => (name ? html`<a href=${to(["clusterqueues", name])}>${name}</a>` : html`<span class="soft">–</span>`);

export const Time = ({ at }) => html`<time datetime=${at}>${timestamp(at)}</time>`;

/** What is used of a quota. `lent`: of a ClusterQueue. `scale`: what the whole width stands for.
 * @param {{resource: string, nominal: number, used: number, lent?: number, scale?: number, thin?: boolean}} props */
export function Bar({ resource, nominal, used, lent = 0, scale, thin }) {
  const whole = Math.max(scale ?? 0, nominal, used) || 1;
  const borrowed = Math.max(0, used - nominal);
  const own = Math.min(used, nominal);
  const words = [`${amount(resource, used)} of ${amount(resource, nominal)} ${unit(resource)} used`];
  if (borrowed) words.push(`${amount(resource, borrowed)} borrowed`);
  if (lent) words.push(`${amount(resource, lent)} lent`);
  const part = (tone, value) => value > 0 && html`<span class=${tone} style=${{ width: `${(100 * value) / whole}%` }}></span>`;
  return html`<span class="bar ${thin ? "thin" : ""}" role="img" aria-label=${words.join(", ")} title=${words.join(", ")}>
    ${part("used", own)}${part("lent", lent)}${part("idle", nominal - own - lent)}${part("borrowed", borrowed)}
  </span>`;
}

/** @param {{parts: {tone: string, label: string, value: number}[], format: (value: number) => string}} props */
export function Stack({ parts, format }) {
  const whole = parts.reduce((sum, part) => sum + part.value, 0) || 1;
  const words = parts.map((part) => `${part.label} ${format(part.value)}`).join(", ");
  return html`<div class="stack">
    <span class="bar" role="img" aria-label=${words}>
      ${parts.map((part) => part.value > 0 && html`<span class=${part.tone} title="${part.label}: ${format(part.value)}" style=${{ width: `${(100 * part.value) / whole}%` }}></span>`)}
    </span>
    <ul class="legend" aria-hidden="true">
      ${parts.map((part) => html`<li><i class=${part.tone}></i>${part.label} <b>${format(part.value)}</b> <span class="soft">${percent(part.value, whole)}</span></li>`)}
    </ul>
  </div>`;
}

/** A section with a heading. `aside`: beside the heading. */
export const Panel = ({ title, aside, note, children }) => html`<section class="panel">
  <header><h2>${title}</h2>${note && html`<span class="soft">${note}</span>`}${aside && html`<div class="aside">${aside}</div>`}</header>
  ${children}
</section>`;

/** A table that scrolls sideways inside its panel. `columns`: [title, class, order], `sort`: {order, by, descending} where a title sets the order.
 * On a phone each row is a paragraph: cells of the classes `number` and `said` begin with the title of their column. */
export function Table({ label, columns, children, sort }) {
  const table = useRef(/** @type {HTMLTableElement | null} */ (null));
  useLayoutEffect(() => {
    const [heads, ...rows] = table.current?.rows ?? [];
    const titles = [...(heads?.cells ?? [])].map((head) => (/\b(number|said)\b/.test(head.className) ? head.textContent : null));
    for (const row of rows) [...row.cells].forEach((cell, place) => (titles[place] ? (cell.dataset.label = titles[place]) : delete cell.dataset.label));
  });
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${label}>
  <table class="cards" ref=${table}><caption class="hidden">${label}</caption>
    <thead><tr>${columns.map(([title, tone, order]) => html`<th scope="col" class=${tone} aria-sort=${order && sort?.order === order ? (sort.descending.includes(order) ? "descending" : "ascending") : undefined}>
      ${order && sort ? html`<button type="button" class="sort" onClick=${() => sort.by(order)}>${title}</button>` : title}</th>`)}</tr></thead>
    <tbody>${children}</tbody>
  </table>
</div>`;
}

/** A link to the rows of a table as CSV. A text that a spreadsheet would take for a formula begins with an apostrophe.
 * @param {{name: string, head: string[], rows: any[][]}} props */
export function Download({ name, head, rows }) {
  const cell = (/** @type {any} */ value) => {
    const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value ?? "");
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const save = () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([[head, ...rows].map((row) => `${row.map(cell).join(",")}\n`).join("")], { type: "text/csv" }));
    link.download = name;
    link.click();
    URL.revokeObjectURL(link.href);
  };
  return html`<button type="button" class="quiet" disabled=${!rows.length} onClick=${save}>CSV</button>`;
}

export const Empty = ({ children }) => html`<p class="empty">${children}</p>`;

export const Loading = ({ rows = 4 }) => html`<div class="loading" role="status"><span class="hidden">Loading</span>
  ${Array.from({ length: rows }, (_, place) => html`<span style=${{ width: `${92 - ((place * 17) % 40)}%` }}></span>`)}
</div>`;

/** What went wrong, and what to do. */
export function Failure({ problem, reload }) {
  if (problem.status === 401) return html`<${Empty}>Sign in to see this.<//>`;
  const title = problem.status === 0 ? "No answer" : `${problem.status} ${problem.title}`;
  return html`<div class="failure" role="alert"><b>${title}</b><p>${problem.message}</p>
    ${reload && html`<button onClick=${reload}>Try again</button>`}</div>`;
}

/** The part of a view that needs a document: its children get it. */
export function Asked({ of, rows, children }) {
  if (of.data) return children(of.data);
  return of.problem ? html`<${Failure} problem=${of.problem} reload=${of.reload} />` : html`<${Loading} rows=${rows} />`;
}

/** The cursors of the pages of a list up to the one shown: [null] is the first page. It begins again with another `key`. */
export function usePages(key) {
  const [state, setState] = useState({ key, cursors: [null] });
  const cursors = state.key === key ? state.cursors : [null];
  return {
    next: cursors[cursors.length - 1],
    number: cursors.length,
    forward: (cursor) => setState({ key, cursors: [...cursors, cursor] }),
    back: () => setState({ key, cursors: cursors.slice(0, -1) }),
  };
}

export function Pager({ pages, next, count, whole, noun }) {
  const of = whole === undefined ? "" : ` of ${grouped(whole)}`;
  if (pages.number === 1 && !next) return html`<p class="pager soft">${counted(count, noun)}</p>`;
  return html`<nav class="pager" aria-label="Pages">
    <span class="soft" role="status">Page ${grouped(pages.number)}, ${counted(count, noun)}${of}</span>
    <button disabled=${pages.number === 1} onClick=${pages.back}>Previous</button>
    <button disabled=${!next} onClick=${() => pages.forward(next)}>Next</button>
  </nav>`;
}

/** One of few values. */
export const Choice = ({ label, values, value, onChange }) => html`<div class="choice" role="radiogroup" aria-label=${label}>
  ${values.map(([each, text]) => html`<label class=${each === value ? "on" : ""}><input type="radio" name=${label} checked=${each === value} onChange=${() => onChange(each)} />${text}</label>`)}
</div>`;

/** Labels and values. Rows without a value are left out. */
export const Facts = ({ rows }) => html`<dl class="facts">${rows
  .filter(([, value]) => value !== null && value !== undefined && value !== "")
  .map(([label, value]) => html`<div><dt>${label}</dt><dd>${value}</dd></div>`)}</dl>`;

/** Of a ClusterQueue or LocalQueue: whether it admits. */
export const QueueBadges = ({ queue }) => html`<${Badge} tone=${queue.active ? "ok" : "bad"} title=${queue.condition.message}>${queue.condition.reason}<//>
  ${queue.cohort && html`<${Badge}>Cohort ${queue.cohort}<//>`}
  ${queue.stopPolicy !== "None" && html`<${Badge} tone="wait">${queue.stopPolicy}<//>`}`;

/** The heading of a view. `aside`: at its end. It gets the focus when the view is opened. */
export function Heading({ kind, title, aside, children }) {
  useEffect(() => {
    if (arrived()) document.getElementById("title")?.focus();
  }, [title]);
  return html`<header class="heading">
    ${kind && html`<p class="kind">${kind}</p>`}<h1 id="title" tabindex="-1">${title}</h1>${children && html`<div class="badges">${children}</div>`}${aside}
  </header>`;
}

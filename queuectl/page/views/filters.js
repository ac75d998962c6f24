// Fields that narrow a list: each is a parameter of REST, and part of the address of the view.
import { html, useState } from "../lib.js";
import { change } from "../route.js";

/** A parameter, or a parameter with the values to choose from and their texts.
 * @typedef {string | [string, string[][]]} Field */

const LABELS = {
  namespace: "Namespace", queue: "LocalQueue", clusterqueue: "ClusterQueue", kind: "Kind", submitter: "Submitter",
  labelSelector: "Label selector", name: "Name contains", reason: "Reason", since: "Since", phase: "Phase", order: "Order",
};

/** @param {Field} field */
const named = (field) => (typeof field === "string" ? field : field[0]);

/** `more`: those behind a heading that opens.
 * @param {{fields: Field[], more?: Field[], params: URLSearchParams, children?: any}} props */
export function Filters({ fields, more = [], params, children }) {
  const names = [...fields, ...more].map(named);
  const drawn = (field) => html`<${One} key=${named(field)} field=${field} params=${params} />`;
  return html`<form class="filters" role="search" aria-label="Filters" onSubmit=${(event) => event.preventDefault()}>
    ${fields.map(drawn)}${children}
    ${more.length > 0 && html`<details open=${more.some((field) => params.get(named(field)))}><summary>More filters</summary><div>${more.map(drawn)}</div></details>`}
    ${names.some((name) => params.get(name)) && html`<button type="button" class="quiet" onClick=${() => change(Object.fromEntries(names.map((name) => [name, null])))}>Clear</button>`}
  </form>`;
}

/** @param {{field: Field, params: URLSearchParams}} props */
function One({ field, params }) {
  const name = named(field);
  const value = params.get(name) ?? "";
  const set = (event) => change({ [name]: event.target.value.trim() || null });
  const values = typeof field === "string" ? null : field[1];
  return html`<label>${LABELS[name]} ${values
    ? html`<select value=${value} onChange=${set}>${values.map(([each, text]) => html`<option value=${each} selected=${each === value}>${text}</option>`)}</select>`
    : html`<${Text} key=${value} value=${value} onChange=${set} />`}</label>`;
}

/** What is typed stays while the list below is drawn again. */
function Text({ value, onChange }) {
  const [text, setText] = useState(value);
  return html`<input type="text" value=${text} spellcheck="false" autocomplete="off" onInput=${(event) => setText(event.target.value)} onChange=${onChange} />`;
}

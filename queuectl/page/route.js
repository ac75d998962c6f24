// The address of a view: `#/clusterqueues/team-a?asOf=…`. Behind the hash, so that it works below any path.
import { store } from "./lib.js";

/** @typedef {{parts: string[], params: URLSearchParams}} Route */

/** @returns {Route} */
function parse() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { parts: path.split("/").filter(Boolean).map(decoded), params: new URLSearchParams(query) };
}

/** @param {string} text */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export const route = store(parse());
let moved = false;
addEventListener("hashchange", () => {
  const before = route.get().parts.join("/");
  const next = parse();
  moved ||= next.parts.join("/") !== before;
  route.set(next);
});

/** Was another view opened since the last call? Not at the start: there the focus begins at the top of the page. */
export function arrived() {
  const was = moved;
  moved = false;
  return was;
}

/** The address of another view. The time that the page is of stays.
 * @param {string[]} parts
 * @param {Record<string, string | number | null | undefined>} [params] */
export function to(parts, params = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries({ asOf: route.get().params.get("asOf"), ...params }))
    if (value !== null && value !== undefined && value !== "") query.set(name, String(value));
  const text = query.toString();
  return `#/${parts.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

/** The same view with other parameters; null removes one.
 * @param {Record<string, string | number | null>} params
 * @param {{replace?: boolean}} [how] */
export function change(params, how = {}) {
  const now = parse(); // the event of an earlier change may not have come yet
  const address = to(now.parts, { ...Object.fromEntries(now.params), ...params });
  if (how.replace) {
    history.replaceState(null, "", address);
    route.set(parse());
  } else location.hash = address;
}

/** @param {{namespace: string | null, kind: string | null, name: string | null}} workload */
export const toWorkload = (workload) =>
  workload.name === null ? null : to(["workloads", String(workload.namespace), String(workload.kind), workload.name]);

/** @param {string} node such as ClusterQueue/team-a */
export function toNode(node) {
  const [kind, name] = node.split("/");
  return kind === "ClusterQueue" ? to(["clusterqueues", name]) : null;
}

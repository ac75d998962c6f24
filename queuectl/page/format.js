// Numbers and times as the command line prints them. Pure.

/** @type {[string, number][]} */
const BINARY = [["Ei", 2 ** 60], ["Pi", 2 ** 50], ["Ti", 2 ** 40], ["Gi", 2 ** 30], ["Mi", 2 ** 20], ["Ki", 2 ** 10]];
const MINUTE = 60, HOUR = 3600, DAY = 86400;

/** @param {string} resource */
export const isBytes = (resource) => resource === "memory" || resource === "ephemeral-storage" || resource.startsWith("hugepages-");

/** Is it a device, such as nvidia.com/gpu?
 * @param {string} resource */
export const isDevice = (resource) => resource.includes("/");

/** Devices first: they are scarce. Takes resources, and flavor and resource with a space between.
 * @param {string} one
 * @param {string} other */
export const devicesFirst = (one, other) => Number(isDevice(other)) - Number(isDevice(one));

/** `gpu` for `nvidia.com/gpu`.
 * @param {string} resource */
export const unit = (resource) => resource.slice(resource.lastIndexOf("/") + 1) || resource;

/** Base units as a Kubernetes quantity, bytes with three figures at most.
 * @param {string} resource
 * @param {number | null | undefined} value */
export function amount(resource, value) {
  if (value === null || value === undefined) return "–";
  if (value < 0) return `−${amount(resource, -value)}`;
  if (resource === "cpu") return value % 1000 ? (value < 1000 ? `${Math.round(value)}m` : figure(value / 1000)) : grouped(value / 1000);
  if (isBytes(resource)) {
    for (const [suffix, size] of BINARY) if (value >= size) return `${figure(value / size)}${suffix}`;
  }
  return figure(value);
}

/** The unit of an axis up to `most` base units: its size, and what stands behind a number of it.
 * @param {string} resource
 * @param {number} most
 * @returns {[number, string]} */
export function scaled(resource, most) {
  if (!isBytes(resource)) return [resource === "cpu" ? 1000 : 1, ""];
  const [suffix, size] = BINARY.find(([, each]) => most >= each) ?? ["", 1];
  return [size, suffix];
}

/** Resource-hours, as `queuectl share --since` prints them.
 * @param {string} resource
 * @param {number} value */
export function hours(resource, value) {
  const size = resource === "cpu" ? 1000 : isBytes(resource) ? 2 ** 30 : 1;
  const digits = value / size < 1 ? 2 : 1;
  return (value / size).toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

/** What `hours` counts.
 * @param {string} resource */
export const hoursOf = (resource) => (isBytes(resource) ? `${resource} Gi-hours` : `${unit(resource)}-hours`);

/** @param {number} value */
function figure(value) {
  return Number.isInteger(value) ? grouped(value) : value.toLocaleString("en", { maximumFractionDigits: value < 100 ? 1 : 0 });
}

/** @param {number} value */
export const grouped = (value) => value.toLocaleString("en");

/** `7s`, `3m20s`, `2h05m`, `4d12h`.
 * @param {number} seconds */
export function duration(seconds) {
  const s = Math.max(0, Math.floor(seconds));
  const two = (/** @type {number} */ value) => String(value).padStart(2, "0");
  if (s < MINUTE) return `${s}s`;
  if (s < HOUR) return `${Math.floor(s / MINUTE)}m${two(s % MINUTE)}s`;
  if (s < DAY) return `${Math.floor(s / HOUR)}h${two(Math.floor((s % HOUR) / MINUTE))}m`;
  return `${Math.floor(s / DAY)}d${two(Math.floor((s % DAY) / HOUR))}h`;
}

/** @param {string | Date} time */
const date = (time) => (time instanceof Date ? time : new Date(time));

/** `2026-01-03 10:00:00`, in the time zone of the browser.
 * @param {string | Date} time */
export function timestamp(time) {
  const at = date(time);
  const two = (/** @type {number} */ value) => String(value).padStart(2, "0");
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${clock(at)}`;
}

/** `10:00:00`.
 * @param {string | Date} time */
export function clock(time) {
  const at = date(time);
  return [at.getHours(), at.getMinutes(), at.getSeconds()].map((value) => String(value).padStart(2, "0")).join(":");
}

/** Seconds from one time to another.
 * @param {string | Date} from
 * @param {string | Date} to */
export const between = (from, to) => (date(to).getTime() - date(from).getTime()) / 1000;

/** `74%`; nothing of nothing is 0.
 * @param {number} part
 * @param {number} whole */
export const percent = (part, whole) => `${whole > 0 ? Math.round((100 * part) / whole) : 0}%`;

/** A value of JSON as YAML, as kubectl prints it.
 * @param {any} value
 * @param {string} [indent]
 * @returns {string} */
export function yaml(value, indent = "") {
  if (value === null || typeof value !== "object" || !Object.keys(value).length) return `${scalar(value)}\n`;
  const begin = (/** @type {any} */ one, /** @type {string} */ deeper) => (one !== null && typeof one === "object" && Object.keys(one).length ? `\n${deeper}` : " ");
  if (Array.isArray(value)) return value.map((one) => `${indent}- ${yaml(one, `${indent}  `).trimStart()}`).join("");
  return Object.entries(value).map(([name, one]) => {
    const deeper = Array.isArray(one) ? indent : `${indent}  `;
    return `${indent}${scalar(name)}:${begin(one, deeper)}${yaml(one, deeper).trimStart()}`;
  }).join("");
}

/** @param {any} value a text that YAML reads as it is, else as JSON */
const scalar = (value) => (/^[A-Za-z][\w./-]*$/.test(value) && !/^(true|false|null|yes|no|on|off|y|n)$/i.test(value) && typeof value === "string" ? value : JSON.stringify(value));

/** `3 workloads`, `1 workload`.
 * @param {number} count
 * @param {string} noun */
export const counted = (count, noun) => `${grouped(count)} ${noun}${count === 1 ? "" : "s"}`;

/** `4 gpu, 16 cpu, 64Gi memory`.
 * @param {Record<string, number>} amounts */
export function amounts(amounts) {
  const names = Object.keys(amounts).filter((name) => amounts[name]).sort().sort(devicesFirst);
  return names.map((name) => `${amount(name, amounts[name])} ${unit(name)}`).join(", ") || "–";
}

/** Of all pods of these podsets.
 * @param {{count: number, requests: Record<string, number>}[]} podSets
 * @returns {Record<string, number>} */
export function total(podSets) {
  /** @type {Record<string, number>} */
  const sums = {};
  for (const set of podSets)
    for (const [name, each] of Object.entries(set.requests)) sums[name] = (sums[name] ?? 0) + each * set.count;
  return sums;
}

/** Devices only: they are scarce. Device-seconds in hours, or in minutes below one; empty: none.
 * @param {Record<string, number> | null | undefined} amounts by resource; none of an older server */
export const deviceTime = (amounts) =>
  Object.entries(amounts ?? {}).filter(([name]) => isDevice(name)).map(([name, value]) => `${(value / (value < 3600 ? 60 : 3600)).toFixed(1)} ${unit(name)} ${value < 3600 ? "minutes" : "hours"}`).join(", ");

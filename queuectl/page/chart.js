// Charts over time with uPlot. Only views with a chart load this.
import uPlot from "./vendor/uplot.js";
import { clock, scaled } from "./format.js";
import { theme } from "./shell.js";

const HEIGHT = 220;

/** A field of the points, and how it is drawn. Those with `stacked` stand on those before them.
 * @typedef {{field: string, label: string, tone: string, fill?: number, dash?: number[], stacked?: boolean}} Line */

/** Draw steps into an element. Returns what removes the chart.
 * @param {HTMLElement} place
 * @param {Record<string, any>[]} points from `since` to `until` each; null: not known
 * @param {string} resource
 * @param {Line[]} lines
 * @returns {() => void} */
export function draw(place, points, resource, lines) {
  // A canvas takes no variables: the browser computes each for an element.
  const probe = place.appendChild(document.createElement("i"));
  const colour = (/** @type {string} */ name) => {
    probe.style.color = `var(--${name}-ink)`;
    return getComputedStyle(probe).color;
  };
  const resolved = (/** @type {string} */ name) => () => colour(name);
  const times = points.flatMap((point) => [Date.parse(point.since) / 1000, Date.parse(point.until) / 1000 - 0.001]);
  const drawn = lines.map((line, index) => ({ line, fields: line.stacked ? lines.slice(0, index + 1) : [line] }));
  if (lines[0].stacked) drawn.reverse(); // the highest first, behind the others
  const sums = points.map((point) => lines.reduce((sum, { field }) => sum + (point[field] ?? 0), 0));
  const [size, suffix] = scaled(resource, Math.max(0, ...sums));
  const values = (/** @type {Line[]} */ fields) => points.flatMap((point) => {
    const known = fields.every(({ field }) => point[field] !== null);
    const value = known ? fields.reduce((sum, { field }) => sum + point[field] / size, 0) : null;
    return [value, value];
  });
  const axis = { stroke: resolved("soft"), grid: { stroke: resolved("line"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
  const series = (/** @type {Line} */ { tone, fill, dash }) => ({ stroke: resolved(tone), width: 1.5, points: { show: false }, ...(dash && { dash }), ...(fill && { fill: () => `color-mix(in srgb, ${colour(tone)} ${fill}%, transparent)` }) });
  const chart = new uPlot(
    {
      width: place.clientWidth || 600,
      height: HEIGHT,
      legend: { show: false },
      cursor: { show: false },
      scales: { y: { range: (_, least, most) => [0, Math.max(1, most * 1.1)] } },
      axes: [{ ...axis, values: (_, ticks) => labels(ticks) }, { ...axis, size: 56, values: (_, ticks) => ticks.map((tick) => `${tick.toLocaleString("en", { maximumFractionDigits: 3 })}${suffix}`) }],
      series: [{}, ...drawn.map(({ line }) => series(line))],
    },
    [times, ...drawn.map(({ fields }) => values(fields))],
    place,
  );
  const sizes = new ResizeObserver(() => chart.setSize({ width: place.clientWidth, height: HEIGHT }));
  sizes.observe(place);
  const again = () => chart.redraw(false, true);
  const stop = theme.listen(again);
  const system = matchMedia("(prefers-color-scheme: dark)");
  system.addEventListener("change", again);
  return () => {
    stop();
    system.removeEventListener("change", again);
    sizes.disconnect();
    chart.destroy();
    probe.remove();
  };
}

/** Times of day, with the date where it changes.
 * @param {number[]} ticks seconds */
function labels(ticks) {
  let day = "";
  const digits = ticks.length > 1 && ticks[1] - ticks[0] < 60 ? 8 : 5; // with seconds
  return ticks.map((tick) => {
    const at = new Date(tick * 1000);
    const date = `${at.getMonth() + 1}-${at.getDate()}`;
    const text = clock(at).slice(0, digits);
    if (date === day) return text;
    day = date;
    return `${text}\n${date}`;
  });
}

// Charts over time with uPlot. Only views with a chart load this.
import uPlot from "./vendor/uplot.js";
import { amount, clock } from "./format.js";
import { theme } from "./shell.js";

const HEIGHT = 220;

/** Draw steps into an element. Returns what removes the chart.
 * @param {HTMLElement} place
 * @param {{since: string, until: string, used: number, guaranteed: number, borrowed: number, lent: number}[]} points
 * @param {string} resource
 * @returns {() => void} */
export function draw(place, points, resource) {
  // A canvas takes no variables: the browser computes each for an element.
  const probe = place.appendChild(document.createElement("i"));
  const colour = (/** @type {string} */ name) => {
    probe.style.color = `var(--${name}-ink)`;
    return getComputedStyle(probe).color;
  };
  const resolved = (/** @type {string} */ name) => () => colour(name);
  const times = points.flatMap((point) => [Date.parse(point.since) / 1000, Date.parse(point.until) / 1000 - 0.001]);
  const values = (/** @type {"used" | "guaranteed" | "borrowed" | "lent"} */ field) => points.flatMap((point) => [point[field], point[field]]);
  const axis = { stroke: resolved("soft"), grid: { stroke: resolved("line"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
  const series = (name, more = {}) => ({ stroke: resolved(name), width: 1.5, points: { show: false }, ...more });
  const filled = (name) => series(name, { fill: () => `color-mix(in srgb, ${colour(name)} 22%, transparent)` });
  const chart = new uPlot(
    {
      width: place.clientWidth || 600,
      height: HEIGHT,
      legend: { show: false },
      cursor: { show: false },
      scales: { y: { range: (_, least, most) => [0, Math.max(1, most * 1.1)] } },
      axes: [{ ...axis, values: (_, ticks) => labels(ticks) }, { ...axis, size: 56, values: (_, ticks) => ticks.map((tick) => amount(resource, tick)) }],
      series: [{}, filled("used"), series("soft", { dash: [4, 4] }), filled("borrowed"), series("lent")],
    },
    [times, values("used"), values("guaranteed"), values("borrowed"), values("lent")],
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

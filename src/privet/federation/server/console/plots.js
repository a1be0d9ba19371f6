// Small plots of one model's past, as wide in pixels as they are told. Each says in words what it
// shows, for those who do not see it.

import { draw, el } from "./dom.js";
import { count, percent } from "./words.js";

const HEIGHT = 118;
const LEFT = 38;
const RIGHT = 8;
const TOP = 8;
const BOTTOM = 20;
const MOST_DOTS = 40;

/** Updates of each round; what did not become a version is hollow. */
export function updatesPlot(history, width) {
  const most = niceAbove(Math.max(1, ...history.map((row) => row.updates)));
  const frame = framed(width, history.length, 0, most, count, (i) => history[i].round);
  const wide = frame.step;
  const bars = history.map((row, i) => {
    const y = frame.y(row.updates);
    const shape = row.how === "rolled back"
      ? { x: frame.x(i) - 0.75, width: 1.5, y: TOP, height: HEIGHT - TOP - BOTTOM }
      : { x: frame.x(i) - 0.39 * wide, width: 0.78 * wide, y, height: Math.max(0.8, HEIGHT - BOTTOM - y) };
    const bar = draw("rect", { ...shape, class: `bar ${row.how.replace(" ", "-")}` });
    bar.append(draw("title", {}, `round ${row.round}: ${row.updates} updates, ${row.how}`));
    return bar;
  });
  const last = history.at(-1);
  const less = history.some((row) => row.how === "too few" || row.how === "rejected");
  return figure("Updates by round", frame, bars,
    `${history.length} rounds; the last one, ${last.round}, had ${last.updates} updates and was ${last.how}.`,
    less ? "Updates by round (hollow: no step)" : "Updates by round");
}

/** Accuracy on the devices' held-out records, by version. */
export function accuracyPlot(reports, width) {
  const values = reports.map((row) => row.right / row.tried);
  const low = Math.max(0, Math.floor(10 * Math.min(...values) - 0.5) / 10);
  const high = Math.min(1, Math.ceil(10 * Math.max(...values) + 0.5) / 10);
  const said = (i) => `version ${reports[i].version}: ${percent(values[i])} on ${reports[i].devices} devices`;
  return linePlot("Accuracy by version, on the devices", width, values, low, high,
    (value) => `${Math.round(100 * value)} %`, (i) => reports[i].version, said);
}

/** How old, in versions, the updates of a round were. */
export function stalenessPlot(history, width) {
  const values = history.map((row) => row.staleness);
  const most = Math.max(1, ...values);
  const said = (i) => `round ${history[i].round}: ${values[i].toFixed(1)} versions old on average`;
  return linePlot("Mean staleness by round", width, values, 0, Math.ceil(most),
    (value) => String(Math.round(10 * value) / 10), (i) => history[i].round, said);
}

function linePlot(title, width, values, low, high, label, name, said) {
  const frame = framed(width, values.length, low, high, label, name);
  const points = values.map((value, i) => `${frame.x(i)},${frame.y(value)}`);
  const shapes = [draw("polyline", { points: points.join(" "), class: "line" })];
  if (values.length <= MOST_DOTS) {
    values.forEach((value, i) => {
      const dot = draw("circle", { cx: frame.x(i), cy: frame.y(value), r: 2.6, class: "dot" });
      dot.append(draw("title", {}, said(i)));
      shapes.push(dot);
    });
  }
  return figure(title, frame, shapes, `${values.length} points; the last one: ${said(values.length - 1)}.`, title);
}

/** Axes: places of n things from left to right, and of values from low to high. */
function framed(width, n, low, high, label, name) {
  const step = (width - LEFT - RIGHT) / Math.max(n, 8);
  const x = (i) => LEFT + step * (i + 0.5);
  const y = (value) => HEIGHT - BOTTOM - ((value - low) / (high - low)) * (HEIGHT - TOP - BOTTOM);
  const lines = [low, (low + high) / 2, high].map((value) =>
    draw("line", { x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value), class: "grid" }));
  const marks = [low, high].map((value) =>
    draw("text", { x: LEFT - 6, y: y(value) + 4, class: "mark end" }, label(value)));
  const ends = n > 1 ? [0, n - 1] : [0];
  const names = ends.map((i) =>
    draw("text", { x: x(i), y: HEIGHT - 4, class: "mark middle" }, name(i)));
  return { width, step, x, y, shapes: [...lines, ...marks, ...names] };
}

function figure(title, frame, shapes, said, caption) {
  const drawing = draw("svg", {
    viewBox: `0 0 ${frame.width} ${HEIGHT}`, role: "img", "aria-label": `${title}: ${said}`,
  }, ...frame.shapes, ...shapes);
  return el("figure", {}, el("figcaption", {}, caption), drawing);
}

/** The next round number that is not smaller. */
function niceAbove(value) {
  const unit = 10 ** Math.floor(Math.log10(value));
  return [1, 1.2, 1.5, 2, 3, 4, 5, 6, 8, 10].map((k) => k * unit).find((nice) => nice >= value);
}

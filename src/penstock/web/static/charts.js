// Charts over time, with axes that say what they count; drawn anew when the colours or the width change.
"use strict";

const HEIGHT = 180;
const charts = [];
const format = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const whole = (value) => (Number.isInteger(value) ? format.format(value) : "");  // there is no half of a job
const units = { jobs: whole, "a second": (value) => short.format(value), seconds: (value) => format.format(value) };

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function stretch(seconds) {
  const [size, unit] = seconds >= 7200 ? [1 / 3600, "h"] : seconds >= 120 ? [1 / 60, "min"] : seconds >= 1 || seconds === 0 ? [1, "s"] : [1000, "ms"];
  return `${short.format(size * seconds)} ${unit}`;
}

function last(plot, place) {
  return plot.data[place][plot.data[place].length - 1];
}

// Of points that are far apart, the day as well.
function clock(at, step) {
  if (at === null || at === undefined) return "";
  const text = new Date(1000 * at).toISOString();
  return step >= 600 ? text.slice(5, 16).replace("T", " ") : text.slice(11, 19);
}

// As all pages have it, in UTC; seconds where they matter, and days where hours do not say which.
function moments(_, at) {
  const step = at.length > 1 ? at[1] - at[0] : 60;
  return at.map((each) => {
    const text = new Date(1000 * each).toISOString();
    return step < 60 ? text.slice(11, 19) : step < 86400 ? text.slice(11, 16) : text.slice(5, 10);
  });
}

// `series`: {label, colour}; `unit`: a word of `units`; `least`: so many seconds are shown at least.
function chart(element, series, unit, least, marks = []) {
  const made = { element, series, unit, least, marks, data: [[], ...series.map(() => [])], plot: null };
  charts.push(made);
  drawAnew(made);
  return { set: (data) => { made.data = data; made.plot.setData(data); } };
}

// As wide as its longest label: numbers are never cut.
function widthOf(plot, labels, place, round) {
  const axis = plot.axes[place];
  if (round > 1) return axis._size;
  plot.ctx.save();
  plot.ctx.font = axis.font[0];
  const widest = Math.max(0, ...(labels ?? []).map((label) => plot.ctx.measureText(label).width));
  plot.ctx.restore();
  return Math.max(40, Math.ceil(widest / devicePixelRatio) + 18);
}

// Values with nothing on either side: no line goes through them, so they are drawn as points.
function alone(plot, place) {
  const values = plot.data[place];
  const known = (at) => values[at] !== null && values[at] !== undefined;
  return values.map((_, at) => at).filter((at) => known(at) && !known(at - 1) && !known(at + 1));
}

const MARKS = { deploy: "--accent", start: "--quiet", pause: "--paused", block: "--failed" };

// Deploys, starts and pauses, as lines down to the time axis.
function drawMarks(plot, marks) {
  const { ctx, bbox } = plot;
  ctx.save();
  for (const { at, kind } of marks) {
    const x = Math.round(plot.valToPos(at, "x", true));
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.strokeStyle = colour(MARKS[kind] ?? "--quiet");
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash(kind === "deploy" ? [] : [4, 4]);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}

function drawAnew(made) {
  const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 }, font: "12px system-ui", labelFont: "12px system-ui", labelSize: 18 };
  const say = units[made.unit], exact = made.unit === "seconds" ? stretch : (value) => format.format(value);
  made.plot?.destroy();
  made.plot = new uPlot({
    width: made.element.clientWidth, height: HEIGHT, cursor: { y: false }, tzDate: (at) => uPlot.tzDate(new Date(1000 * at), "UTC"),
    scales: {
      x: { range: (_, low, high) => { const end = high ?? Date.now() / 1000; return [Math.min(low ?? end, end - made.least), end]; } },
      y: { range: (_, low, high) => [0, Math.max(made.unit === "jobs" ? 1 : 0.01, (high ?? 0) * 1.1)] },
    },
    padding: [8, 24, 0, 0],  // half a label on the right
    hooks: { draw: [(plot) => drawMarks(plot, made.marks)] },
    axes: [{ ...axis, size: 30, space: 64, values: moments, label: "time (UTC)" }, { ...axis, size: widthOf, label: made.unit, values: (_, at) => at.map(say) }],
    series: [{ label: "at", value: (plot, at) => clock(at ?? last(plot, 0), plot.data[0][1] - plot.data[0][0]) }, ...made.series.map((each) => ({
      label: each.label, stroke: colour(each.colour), width: 1.5, spanGaps: false, points: { size: 4, filter: alone },
      value: (plot, value, place, at) => { const told = at === null ? last(plot, place) : value; return told === null || told === undefined ? "none" : exact(told); },
    }))],
  }, made.data, made.element);
}

addEventListener("resize", () => {
  for (const { element, plot } of charts) plot.setSize({ width: element.clientWidth, height: HEIGHT });
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => charts.forEach(drawAnew));
document.addEventListener("penstock-theme", () => charts.forEach(drawAnew));

// What a page has to show at once stands in the page itself.
for (const element of document.querySelectorAll("[data-chart]")) {
  const told = JSON.parse(element.dataset.chart);
  chart(element, told.series, told.unit, 60, told.marks).set([told.at, ...told.series.map((each) => each.values)]);
}

// Charts over time, with axes that say what they count; drawn anew when the colours or the width change.
"use strict";

const HEIGHT = 180;
const charts = [];
const format = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const whole = (value) => (Number.isInteger(value) ? format.format(value) : "");  // there is no half of a job
const units = { jobs: whole, "a second": whole, seconds: (value) => format.format(value) };

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

function clock(at) {
  return at === null || at === undefined ? "" : new Date(1000 * at).toISOString().slice(11, 19);
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
function chart(element, series, unit, least) {
  const made = { element, series, unit, least, data: [[], ...series.map(() => [])], plot: null };
  charts.push(made);
  drawAnew(made);
  return { set: (data) => { made.data = data; made.plot.setData(data); } };
}

function drawAnew(made) {
  const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 }, font: "12px system-ui", labelFont: "12px system-ui", labelSize: 18 };
  const say = units[made.unit], exact = made.unit === "seconds" ? stretch : (value) => format.format(value);
  made.plot?.destroy();
  made.plot = new uPlot({
    width: made.element.clientWidth, height: HEIGHT, cursor: { y: false }, tzDate: (at) => uPlot.tzDate(new Date(1000 * at), "UTC"),
    scales: {
      x: { range: (_, low, high) => { const end = high ?? Date.now() / 1000; return [Math.min(low ?? end, end - made.least), end]; } },
      y: { range: (_, low, high) => [0, Math.max(made.unit === "seconds" ? 0.01 : 1, (high ?? 0) * 1.1)] },
    },
    axes: [{ ...axis, size: 30, space: 64, values: moments, label: "time (UTC)" }, { ...axis, size: 56, label: made.unit, values: (_, at) => at.map(say) }],
    series: [{ label: "at", value: (plot, at) => clock(at ?? last(plot, 0)) }, ...made.series.map((each) => ({
      label: each.label, stroke: colour(each.colour), width: 1.5, spanGaps: true,
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
  chart(element, told.series, told.unit, 60).set([told.at, ...told.series.map((each) => each.values)]);
}

// The overview's live part: figures, charts and sparklines out of one stream of ticks, one a second.
"use strict";

const MOST = 300;
const PLACES = ["ready", "scheduled", "waiting", "paused", "running", "failed", "limited"];
const ticks = [];
const GAP = 5;  // seconds without a tick: the line ends, and begins again

// Of a time that nobody looked at nothing is known.
function rate(tick, ended) { return tick.seconds === null ? null : ended / tick.seconds; }

// A point of nulls in each gap, so that no line is drawn across it.
function withGaps(told) {
  return told.flatMap((tick, at) => {
    const before = told[at - 1];
    return before !== undefined && tick.at - before.at > GAP ? [{ at: (before.at + tick.at) / 2, gap: true }, tick] : [tick];
  });
}

const shown = [
  ["throughput", "a second", [{ label: "succeeded", colour: "--succeeded", of: (t) => rate(t, t.succeeded) }, { label: "failed", colour: "--failed", of: (t) => rate(t, t.failed) }]],
  ["wait", "seconds", [{ label: "wait", colour: "--accent", of: (t) => t.wait }, { label: "run", colour: "--running", of: (t) => t.took }]],
  ["depth", "jobs", [{ label: "ready", colour: "--ready", of: (t) => t.places.ready }, { label: "running", colour: "--running", of: (t) => t.places.running }]],
].map(([id, unit, series]) => ({ series, plot: chart(document.getElementById(id), series, unit, 60) }));

function sparkline(row, name) {
  const place = row.querySelector("polyline");
  if (place === null) return;
  const depths = ticks.slice(-60).map((tick) => {
    const found = tick.queues.find((each) => each[0] === name);
    return found === undefined ? 0 : found[1][0] + found[1][4];
  });
  const most = Math.max(1, ...depths);
  place.setAttribute("points", depths.map((depth, at) => `${at * 2},${(22 - 20 * depth / most).toFixed(1)}`).join(" "));
}

function draw() {
  const last = ticks[ticks.length - 1];
  for (const figure of document.querySelectorAll("[data-live] [data-figure]")) {
    const value = figure.dataset.figure === "alive" ? last.alive : last.places[figure.dataset.figure];
    if (value !== undefined) figure.textContent = format.format(value);
  }
  const queues = new Map(last.queues);
  for (const row of document.querySelectorAll("tr[data-queue]")) {
    const places = queues.get(row.dataset.queue) ?? (last.queues.length < 50 ? PLACES.map(() => 0) : null);
    if (places === null) continue;
    PLACES.forEach((place, at) => {
      const cell = row.querySelector(`[data-figure="${place}"]`);
      if (cell === null) return;
      cell.textContent = format.format(places[at]);
      cell.className = `right ${places[at] ? place : "zero"}`;
    });
    sparkline(row, row.dataset.queue);
  }
  const points = withGaps(ticks);
  for (const { series, plot } of shown) {
    plot.set([points.map((tick) => tick.at), ...series.map((each) => points.map((tick) => (tick.gap ? null : each.of(tick) ?? null)))]);
  }
}

const state = document.getElementById("live");
const stream = new EventSource(document.body.dataset.root + "/live");
stream.onmessage = (event) => {
  const told = JSON.parse(event.data);
  if (told.length > 1 || ticks.length === 0) ticks.length = 0;
  ticks.push(...told.filter((tick) => tick.error === null));
  ticks.splice(0, Math.max(0, ticks.length - MOST));
  const last = told[told.length - 1];
  state.textContent = last?.error ?? "live";
  document.getElementById("skipped").hidden = !last?.more;
  if (ticks.length > 0) draw();
};
stream.onerror = () => { state.textContent = "not live: trying again"; };

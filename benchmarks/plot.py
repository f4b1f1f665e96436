"""`python plot.py figures.json plot.svg`: the main figures as bars, on logarithmic axes.

The colour is the store's, and a heavy name is Penstock's: what can be compared stands out together.
Figures of curves.py become a panel for each curve, with the raw limits of the stores as lines.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from roster import STORES

COLOURS = {"postgres": "#336791", "redis": "#c6302b", "sqlite": "#7a8b99"}
PANELS = (
    ("single", "Single enqueue", "jobs/s (logarithmic), more is better"),
    ("bulk", "Bulk enqueue", "jobs/s (logarithmic), more is better"),
    ("process", "Processing, one process", "jobs/s (logarithmic), more is better"),
    ("process_two", "Processing, two processes", "jobs/s (logarithmic), more is better"),
    ("latency", "Latency at 20 jobs/s, p50", "ms (logarithmic), less is better"),
    ("slow", "10 ms tasks with 2 kB, ten at a time", "jobs/s (logarithmic); 1,000 is the limit"),
)


def draw(results: dict[str, Any]) -> Figure:
    """One panel for each measurement, one bar for each system."""
    figure = Figure(figsize=(11, 12.5), layout="constrained")
    panels = figure.subplots(3, 2).flatten()
    for axes, (measure, title, unit) in zip(panels, PANELS, strict=True):
        _bars(axes, results, measure)
        axes.set_title(title, fontsize=12, fontweight="bold", loc="left")
        axes.set_xlabel(unit, fontsize=10)
    machine = results["machine"]
    where = f"{machine['cores']} cores, {machine['file_system']}, Python {machine['python']}"
    figure.suptitle(f"Penstock and its peers, one run on one machine ({where})", fontsize=14)
    legend = [Patch(color=colour, label=STORES[store]) for store, colour in COLOURS.items()]
    figure.legend(handles=legend, loc="outside lower center", ncols=len(legend), fontsize=11)
    return figure


def _bars(axes: Axes, results: dict[str, Any], measure: str) -> None:
    rows: list[tuple[str, dict[str, Any], float]] = []
    for peer in results["peers"].values():
        figure = peer["figures"].get(measure, {})
        value = figure.get("p50" if measure == "latency" else "median")
        if value:
            rows.append((f"{peer['about']['library']}, {STORES[peer['store']]}", peer, value))
    rows.sort(key=lambda row: row[2], reverse=measure == "latency")
    values = [value for _, _, value in rows]
    bars = axes.barh(
        [name for name, _, _ in rows], values, color=[COLOURS[row[1]["store"]] for row in rows]
    )
    axes.bar_label(
        bars,
        labels=[f"{value:.1f}" if measure == "latency" else f"{value:,.0f}" for value in values],
        padding=4,
        fontsize=10,
    )
    axes.set_xscale("log")
    if values:
        axes.set_xlim(min(values) / 3, max(values) * 5)  # room for the labels
    axes.tick_params(labelsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    for label, (_, peer, _) in zip(axes.get_yticklabels(), rows, strict=True):
        label.set_fontweight("bold" if peer["library"] == "penstock" else "normal")


def draw_curves(results: dict[str, Any]) -> Figure:
    """One panel for each curve, one line for each store."""
    curves = results["curves"]
    height = (len(curves) + 1) // 2
    figure = Figure(figsize=(11, 3.6 * height), layout="constrained")
    panels = figure.subplots(height, 2, squeeze=False).flatten()
    for axes, (name, kinds) in zip(panels, curves.items(), strict=False):
        for kind, points in kinds.items():
            sizes, costs = zip(*points, strict=True) if points else ((), ())
            axes.plot(sizes, costs, marker="o", color=COLOURS[kind], label=STORES[kind])
            limit = results["raw"][kind]
            axes.axhline(limit, color=COLOURS[kind], linestyle=":", linewidth=1)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel(results["titles"][name], fontsize=10)
        axes.set_ylabel("µs a job", fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in panels[len(curves) :]:
        axes.set_visible(False)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=11)
    figure.suptitle("Cost per job; dotted: one row written, with nothing around it", fontsize=14)
    return figure


def main() -> None:
    """Draw, the same file for the same figures."""
    mpl.rcParams |= {"svg.hashsalt": "penstock", "svg.fonttype": "none"}
    source, target = (Path(argument) for argument in sys.argv[1:3])
    results = json.loads(source.read_text(encoding="utf-8"))
    figure = draw_curves(results) if "curves" in results else draw(results)
    figure.savefig(target, metadata={"Date": None} if target.suffix == ".svg" else None)


if __name__ == "__main__":
    main()

"""What came out, in words: a table for the terminal, a page for the documentation.

The page is made of the figures beside it (assets/benchmarks.json) and nothing else, between two
markers; everything around them is written by hand.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from asking import Failed
from roster import HERE, STORES

BEGIN = "<!-- made by make bench: begin -->"
END = "<!-- made by make bench: end -->"
CURVES_BEGIN = "<!-- made by make bench ARGS=--curves: begin -->"
CURVES_END = "<!-- made by make bench ARGS=--curves: end -->"
RAW_WORDS = {
    "postgres_copy": ("PostgreSQL", "COPY by psycopg's `write_row`, 100,000 rows a commit"),
    "postgres_commit": ("PostgreSQL", "INSERT by psycopg, one row a commit"),
    "redis_pipeline": ("Redis", "RPUSH by redis-py, 1,000 to a pipeline"),
    "redis_push": ("Redis", "RPUSH by redis-py, one by one"),
    "sqlite_bulk": ("SQLite", "`executemany`, 10,000 rows a commit"),
    "sqlite_commit": ("SQLite", "INSERT, one row a commit, synchronous FULL"),
}
# What each figure of Penstock is compared with, by store.
RAW_OF = {
    "postgres": {
        "single": "postgres_commit",
        "bulk": "postgres_copy",
        "process": "postgres_copy",
    },
    "redis": {"single": "redis_push", "bulk": "redis_pipeline", "process": "redis_pipeline"},
}
RATIO_WORDS = {
    "postgres_commit": "a raw commit of one row",
    "postgres_copy": "raw COPY",
    "redis_push": "RPUSH, one by one",
    "redis_pipeline": "RPUSH in pipelines",
}
# Of a measurement that a run has not made there is no column: older figures have fewer.
LATER = {"cpu"}
COLUMNS = {
    "single": "single enqueue, jobs/s",
    "bulk": "bulk enqueue, jobs/s",
    "process": "processing, 1 process, jobs/s",
    "process_two": "2 processes, jobs/s",
    "latency": "latency p50 / p99, ms",
    "slow": "10 ms and 2 kB, jobs/s",
    "cpu": "1 ms of CPU, jobs/s",
    "fan_out": "fan-out/in, s",
}


def read(docs: Path) -> dict[str, Any]:
    """The figures of the last run that was written."""
    return json.loads((docs / "assets" / "benchmarks.json").read_text(encoding="utf-8"))


def write(results: dict[str, Any], docs: Path, python: Path | None) -> None:
    """The figures, the page and the plot, which needs a Python with matplotlib."""
    assets = docs / "assets"
    assets.mkdir(exist_ok=True)
    figures = assets / "benchmarks.json"
    figures.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    page = docs / "benchmarks.md"
    page.write_text(filled(page.read_text(encoding="utf-8"), results), encoding="utf-8")
    if python is None:
        return
    _plot(python, figures, assets / "benchmarks.svg")


def write_curves(found: dict[str, Any], docs: Path, python: Path | None) -> None:
    """The figures of curves.py, their table in the page, and the plot."""
    assets = docs / "assets"
    assets.mkdir(exist_ok=True)
    figures = assets / "curves.json"
    figures.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    page = docs / "benchmarks.md"
    before, _, rest = page.read_text(encoding="utf-8").partition(CURVES_BEGIN)
    _, _, after = rest.partition(CURVES_END)
    plot = "![Microseconds a job against each size, with raw limits as lines](assets/curves.svg)"
    inner = f"{plot}\n\n{curves_table(found)}"
    text = f"{before}{CURVES_BEGIN}\n\n{inner}\n\n{CURVES_END}{after}"
    page.write_text(text, encoding="utf-8")
    if python is not None:
        _plot(python, figures, assets / "curves.svg")


def curves_table(found: dict[str, Any]) -> str:
    """A row for each curve and store, and for the raw limit of each."""
    rows = [["microseconds a job, against", "store", "at each size"]]
    for name, kinds in found["curves"].items():
        for kind, points in kinds.items():
            said = ", ".join(f"{size:,}: {cost:.1f}" for size, cost in points)
            rows.append([found["titles"][name], STORES[kind], said])
    for kind, raw in found["raw"].items():
        rows.append(["raw limit: a row of 100 bytes written", STORES[kind], f"{raw:.1f}"])
    return _table(rows)


def _plot(python: Path, figures: Path, target: Path) -> None:
    command = [str(python), str(HERE / "plot.py"), str(figures), str(target)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise Failed(f"no plot: {ran.stderr.strip().splitlines()[-1]}")


def filled(page: str, results: dict[str, Any]) -> str:
    """The page with the tables of these figures between its markers."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{markdown(results)}\n{END}{after}"


def markdown(results: dict[str, Any]) -> str:
    """All tables."""
    parts = [
        _about(results),
        "![Rates and latency of each system, from the table below](assets/benchmarks.svg)",
        _main(results),
        _versus(results),
        "### After kill -9 of the worker\n",
        _kill(results),
        "### What PostgreSQL does for one job\n",
        _cost(results),
        _server(results),
        "### Limits of the stores, in the same run\n",
        _raw(results),
        "### Versions and settings\n",
        _settings(results),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def text(results: dict[str, Any]) -> str:
    """The same for a terminal: columns instead of bars."""
    titled = [_main(results), _kill(results), _cost(results), _server(results)]
    titled += [_raw(results), _versus(results)]
    tables = [table for part in titled if part for table in part.split("\n\n")]
    return "\n\n".join(_aligned(table) for table in tables)


def _about(results: dict[str, Any]) -> str:
    machine, servers = results["machine"], results["servers"]
    stores = [
        f"{STORES[name]} {server['version']} ("
        + ", ".join(f"{key} {value or 'off'}" for key, value in server["settings"].items())
        + ")"
        for name, server in servers.items()
    ]
    size = " Small sizes (`--quick`): a look, not a measurement." if results["quick"] else ""
    return (
        f"Measured on {results['date']} in {results['seconds'] / 60:.0f} minutes: "
        f"{machine['cores']} cores, {machine['memory_gib']} GiB, {machine['kernel']}, "
        f"{machine['file_system']}, Python {machine['python']}; {'; '.join(stores)}. "
        f"Producer, worker and store share the cores. Medians of {results['runs']} runs.{size}"
    )


def _main(results: dict[str, Any]) -> str:
    measured = {name for peer in results["peers"].values() for name in peer["figures"]}
    columns = {name: said for name, said in COLUMNS.items() if name not in LATER - measured}
    rows = [["system", "store", *columns.values()]]
    for peer in results["peers"].values():
        name, store = _named(peer)
        if "failed" in peer:
            rows.append([name, store, _plain(peer["failed"]), *[""] * (len(columns) - 1)])
        else:
            rows.append([name, store, *[_cell(peer, measure) for measure in columns]])
    return _table(rows)


def _cell(peer: dict[str, Any], measure: str) -> str:
    figure = peer["figures"].get(measure)
    if figure is None:
        return "not measured"
    if "reason" in figure:
        return _plain(figure["reason"])
    if measure == "latency":
        return f"{figure['p50']:.1f} / {figure['p99']:.1f}"
    if measure == "fan_out":
        return f"{figure['median']:.2f}"
    return f"{figure['median']:,.0f}"


def _kill(results: dict[str, Any]) -> str:
    sizes = results["sizes"]
    head = ["system", "store", f"of {sizes['kill_jobs']}, never ran", "ran twice"]
    rows = [[*head, "last kill to last end, s", "settings for this"]]
    for peer in results["peers"].values():
        figure = peer["figures"].get("kill")
        if figure is None:
            continue
        name, store = _named(peer)
        if "reason" in figure:
            rows.append([name, store, _plain(figure["reason"]), "", "", peer["about"]["kill"]])
            continue
        lost = figure["never"] > 0
        seconds = f"over {sizes['kill_seconds']:.0f}" if lost else f"{figure['seconds']:.1f}"
        counts = [str(figure["never"]), str(figure["twice"])]
        rows.append([name, store, *counts, seconds, peer["about"]["kill"]])
    return _table(rows) if len(rows) > 1 else ""


def _cost(results: dict[str, Any]) -> str:
    rows = [["system", "WAL of a bulk enqueue, bytes", "WAL of processing, bytes", "statements"]]
    for peer in results["peers"].values():
        figure = peer["figures"].get("cost")
        if figure is not None and "reason" not in figure:
            sizes = [f"{figure[name]:,.0f}" for name in ("wal_enqueue", "wal_process")]
            rows.append([_named(peer)[0], *sizes, f"{figure['statements']:.2g}"])
    return _table(rows) if len(rows) > 1 else ""


_COUNTERS = {"cpu": "CPU s", "wal": "WAL kB", "commits": "commits", "hits": "pages found in memory"}


def _server(results: dict[str, Any]) -> str:
    """A row for each system and situation: per 1,000 jobs, and per minute with none."""
    situations = {
        "backlog": "1,000 jobs of a backlog",
        "busy": f"1,000 jobs at {results['sizes'].get('cost_rate', 0):.0f} a second",
        "idle": "a minute with nothing to do",
    }
    rows = [["system", "what it is for", *_COUNTERS.values(), "connections of an idle worker"]]
    for peer in results["peers"].values():
        figure = peer["figures"].get("server")
        if figure is None or "reason" in figure:
            continue
        for name, said in situations.items():
            if name in figure:
                cells = [_counter(figure[name], counter) for counter in _COUNTERS]
                held = str(figure["connections"]) if name == "idle" else ""
                rows.append([_named(peer)[0], said, *cells, held])
    return _table(rows) if len(rows) > 1 else ""


def _counter(done: dict[str, float], counter: str) -> str:
    if counter not in done:
        return "not measured"
    value = done[counter] / (1024 if counter == "wal" else 1)
    return f"{value:,.2f}" if counter == "cpu" else f"{value:,.0f}"


def _raw(results: dict[str, Any]) -> str:
    rows = [["store", "limit", "a second"]]
    for name, figure in results["raw"].items():
        rows.append([*RAW_WORDS[name], f"{figure['median']:,.0f}"])
    return _table(rows) if len(rows) > 1 else ""


def _settings(results: dict[str, Any]) -> str:
    rows = [["system", "version", "store", "settings", "bulk enqueue by"]]
    for peer in results["peers"].values():
        about = peer.get("about")
        if about is None:
            rows.append([*_named(peer)[:1], "", STORES[peer["store"]], _plain(peer["failed"]), ""])
            continue
        way = about["bulk"] or "has none: one call each"
        name, store = _named(peer)
        rows.append([name, about["version"], store, about["settings"], way])
    return _table(rows)


def ratios(results: dict[str, Any], store: str = "postgres") -> dict[str, float]:
    """Penstock on a store against the best peer there, and against the store itself."""
    ours = results["peers"].get(f"penstock-{store}", {}).get("figures", {})
    others = [
        peer["figures"]
        for peer in results["peers"].values()
        if peer["store"] == store and peer["library"] != "penstock"
    ]
    found: dict[str, float] = {}
    for measure in ("single", "bulk", "process", "process_two", "slow", "cpu"):
        best = max([_median(figures, measure) for figures in others], default=0.0)
        if best and _median(ours, measure):
            found[measure] = _median(ours, measure) / best
    waits = [figures["latency"]["p50"] for figures in others if "p50" in figures.get("latency", {})]
    if waits and "p50" in ours.get("latency", {}):
        found["latency"] = ours["latency"]["p50"] / min(waits)
    for measure, limit in RAW_OF[store].items():
        if limit in results["raw"] and _median(ours, measure):
            raw = results["raw"][limit]["median"]
            found[f"{measure}_of_raw"] = _median(ours, measure) / raw
    if _median(ours, "process") and _median(ours, "process_two"):
        found["two_of_one"] = _median(ours, "process_two") / _median(ours, "process")
    return found


def _median(figures: dict[str, Any], measure: str) -> float:
    return figures.get(measure, {}).get("median", 0.0)


def _versus(results: dict[str, Any]) -> str:
    """A table for each store on which Penstock has peers."""
    tables = [_versus_on(results, store) for store in RAW_OF]
    return "\n\n".join(table for table in tables if table)


def _versus_on(results: dict[str, Any], store: str) -> str:
    found, other = ratios(results, store), f"other system on {STORES[store]}"
    limits = {measure: RATIO_WORDS[limit] for measure, limit in RAW_OF[store].items()}
    words = {
        "single": f"single enqueue, times the fastest {other}",
        "bulk": f"bulk enqueue, times the fastest {other}",
        "process": f"processing by one process, times the fastest {other}",
        "process_two": f"processing by two processes, times the fastest {other}",
        "slow": f"10 ms tasks with 2 kB, times the fastest {other}",
        "cpu": f"tasks of 1 ms of CPU, times the fastest {other}",
        "latency": f"latency p50, times the best {other} (less is better)",
        "single_of_raw": f"single enqueue, of {limits['single']}",
        "bulk_of_raw": f"bulk enqueue, of {limits['bulk']}",
        "process_of_raw": f"processing by one process, of {limits['process']}",
        "two_of_one": "processing by two processes, times one",
    }
    rows = [[f"Penstock on {STORES[store]}", "ratio"]]
    rows += [[said, f"{found[name]:.2f}"] for name, said in words.items() if name in found]
    return _table(rows) if len(rows) > 1 else ""


def _named(peer: dict[str, Any]) -> tuple[str, str]:
    library = peer.get("about", {}).get("library", peer["library"])
    name = f"**{library}**" if peer["library"] == "penstock" else library
    return name, STORES[peer["store"]]


def _plain(reason: str) -> str:
    return reason.replace("|", "/").replace("\n", " ")[:160]


def _table(rows: list[list[str]]) -> str:
    numbers = [all(_is_number(row[place]) for row in rows[1:]) for place in range(len(rows[0]))]
    rule = ["---:" if number else "---" for number in numbers]
    return "\n".join("| " + " | ".join(row) + " |" for row in [rows[0], rule, *rows[1:]])


def _is_number(cell: str) -> bool:
    return cell[:1].isdigit() or cell in {"", "not measured", "has none", "see below"}


def _aligned(table: str) -> str:
    rows = [
        [cell.strip().replace("*", "").replace("`", "") for cell in line.strip("|").split("|")]
        for line in table.splitlines()
    ]
    rows.pop(1)
    widths = [min(max(len(row[place]) for row in rows), 80) for place in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )

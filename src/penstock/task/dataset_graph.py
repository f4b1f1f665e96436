"""Datasets as a graph: which partitions one is made of, and in which order they are made.

A node is what a dataset says of itself, without its function. Nodes refer to each other by name, so
that a graph is checked as a whole: every name is known, nothing needs itself, and each partition
leads to those that it is made of.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from difflib import get_close_matches
from typing import NamedTuple

import msgspec

from penstock.errors import Refused
from penstock.task.interval import Interval, Timeline

Partition = Interval | str
Key = tuple[str, str]  # a dataset and the text of a partition


class Ref(NamedTuple):
    """An input: the partitions at the same time, and with `past` those up to so many before."""

    name: str
    past: int = 1


class DatasetNode(msgspec.Struct, frozen=True, kw_only=True):
    """What a dataset says of itself."""

    name: str
    partitions: Timeline | tuple[str, ...]
    inputs: tuple[Ref, ...] = ()
    after: tuple[Ref, ...] = ()  # to be current before, and no part of the version
    previous: bool = False  # its own partition before the same
    start: Interval | None = None  # the first partition
    code: int = 1
    sources: int = 0  # how many inputs are no datasets


class Graph:
    """Some datasets, checked; refused if they do not fit together."""

    def __init__(self, nodes: Iterable[DatasetNode]) -> None:
        self.nodes = {node.name: node for node in nodes}
        for node in self.nodes.values():
            for ref in (*node.inputs, *node.after):
                self._check_ref(node, ref)
        self.order = self._sorted()
        self._starts: dict[str, datetime | None] = {}

    def _check_ref(self, node: DatasetNode, ref: Ref) -> None:
        other = self.nodes.get(ref.name)
        if other is None:
            near = get_close_matches(ref.name, self.nodes, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(self.nodes)}"
            raise Refused(f"dataset {node.name}: there is no dataset {ref.name!r}; {hint}")
        mine, theirs = node.partitions, other.partitions
        if isinstance(theirs, Timeline):
            if not isinstance(mine, Timeline):
                raise Refused(
                    f"dataset {node.name} has the partitions {', '.join(mine)}, and its input"
                    f" {ref.name} one for each {theirs.every}: which of them does one need? Give"
                    f' {node.name} partition="{theirs.every}" or a longer one'
                )
        elif ref.past > 1:
            raise Refused(
                f"dataset {node.name}: past({ref.past}) of {ref.name}, whose partitions are names"
                " and have no order"
            )
        elif not isinstance(mine, Timeline) and (missing := set(mine) - set(theirs)):
            raise Refused(
                f"dataset {node.name} has a partition {min(missing)!r}, and its input {ref.name}"
                f" has none of that name: there are {', '.join(theirs)}"
            )

    def _sorted(self) -> list[str]:
        """Every dataset after those that it needs."""
        order: list[str] = []
        open_: list[tuple[str, Iterator[str]]] = []
        seen: set[str] = set()
        for first in self.nodes:
            if first in seen:
                continue
            seen.add(first)
            open_.append((first, iter(self.needs(first))))
            while open_:
                name, rest = open_[-1]
                following = next(rest, None)
                if following is None:
                    order.append(name)
                    open_.pop()
                elif following not in seen:
                    seen.add(following)
                    open_.append((following, iter(self.needs(following))))
                elif following not in order:
                    names = [each for each, _ in open_]
                    cycle = [*names[names.index(following) :], following]
                    raise Refused(f"datasets need each other in a cycle: {' -> '.join(cycle)}")
        return order

    def needs(self, name: str) -> list[str]:
        """The datasets that this one directly needs."""
        node = self.nodes[name]
        return list(dict.fromkeys(ref.name for ref in (*node.inputs, *node.after)))

    def upstream(self, names: Iterable[str]) -> list[str]:
        """These datasets and all that they need, in order of need."""
        wanted: set[str] = set()
        remaining = list(names)
        while remaining:
            name = remaining.pop()
            if name not in wanted:
                wanted.add(name)
                remaining += self.needs(name)
        return [name for name in self.order if name in wanted]

    def start_of(self, name: str) -> datetime | None:
        """When its first partition begins: as it says, else the one in which its inputs begin."""
        if name not in self._starts:
            node = self.nodes[name]
            starts = [self.start_of(ref.name) for ref in node.inputs]
            known = [start for start in starts if start is not None]
            own = None if node.start is None else node.start.start
            if own is None and known and isinstance(node.partitions, Timeline):
                own = node.partitions.containing(max(known)).start
            self._starts[name] = own
        return self._starts[name]

    def partition(self, name: str, text: str) -> Partition:
        """The partition of this text."""
        partitions = self.nodes[name].partitions
        if isinstance(partitions, Timeline):
            return partitions.parse(text)
        if text not in partitions:
            raise Refused(
                f"{text!r} is no partition of dataset {name}; there are {', '.join(partitions)}"
            )
        return text

    def range(
        self, name: str, since: datetime | None, until: datetime, *, explicit: bool = False
    ) -> list[Partition]:
        """Its partitions that are over by `until`, from `since` or from its start on."""
        partitions = self.nodes[name].partitions
        if not isinstance(partitions, Timeline):
            return list(partitions)
        start = self.start_of(name)
        if since is not None:
            start = since if start is None or explicit else max(since, start)
        if start is None:
            raise Refused(
                f"dataset {name} does not say with which {partitions.every} it begins: give it"
                " start=..., or name a first one with --since"
            )
        return list(partitions.within(start, until))

    def parents(self, name: str, partition: Partition) -> list[tuple[Ref, list[Partition]]]:
        """For each input the partitions that this one is made of, in order of time."""
        return [(ref, self._of(ref, partition)) for ref in self.nodes[name].inputs]

    def before(self, name: str, partition: Partition) -> Iterator[tuple[str, Partition]]:
        """What must be current before, and is no part of it."""
        node = self.nodes[name]
        for ref in node.after:
            for each in self._of(ref, partition):
                yield ref.name, each
        if node.previous and isinstance(partition, Interval):
            start, earlier = self.start_of(name), self._timeline(name).before(partition)
            if start is None or earlier.start >= start:
                yield name, earlier

    def _of(self, ref: Ref, partition: Partition) -> list[Partition]:
        other = self.nodes[ref.name].partitions
        if not isinstance(other, Timeline):
            return list(other) if isinstance(partition, Interval) else [partition]
        assert isinstance(partition, Interval)  # noqa: S101  checked with the graph
        found = list(other.overlapping(partition.start, partition.end))
        for _ in range(ref.past - 1):
            found.insert(0, other.before(found[0]))
        start = self.start_of(ref.name)
        return [each for each in found if start is None or each.start >= start]

    def children(
        self, name: str, partition: Partition, among: Iterable[str], until: datetime
    ) -> Iterator[tuple[str, Partition]]:
        """The partitions of some datasets that directly need this one, and are over by then."""
        for child in among:
            node = self.nodes[child]
            found: dict[str, Partition] = {}
            for ref in (*node.inputs, *node.after):
                if ref.name == name:
                    found |= {
                        str(each): each for each in self._needing(node, ref, partition, until)
                    }
            if child == name and node.previous and isinstance(partition, Interval):
                following = self._timeline(name).after(partition)
                found[following.text] = following
            for each in found.values():
                if not isinstance(each, Interval) or each.end <= until:
                    yield child, each

    def _needing(
        self, node: DatasetNode, ref: Ref, partition: Partition, until: datetime
    ) -> Iterable[Partition]:
        mine = node.partitions
        if not isinstance(mine, Timeline):
            return [partition] if partition in mine else []
        if not isinstance(partition, Interval):
            start = self.start_of(node.name)
            return [] if start is None else mine.within(start, until)
        last = partition
        for _ in range(ref.past - 1):
            last = self._timeline(ref.name).after(last)
        return mine.overlapping(partition.start, last.end)

    def _timeline(self, name: str) -> Timeline:
        timeline = self.nodes[name].partitions
        assert isinstance(timeline, Timeline)  # noqa: S101  checked with the graph
        return timeline

"""Datasets as a graph: what does not fit is refused; stale is what hangs on what changed."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import Refused
from penstock.task.dataset_graph import DatasetNode, Graph, Ref
from penstock.task.dataset_plan import PartitionState, PartitionVersion, make_plan, run_name
from penstock.task.interval import Timeline

DAY, MONTH = Timeline("day"), Timeline("month")
JANUARY = (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC))
FIRST = DAY.parse("2026-01-01")


def texts(parents):
    return [(ref.name, [str(each) for each in parts]) for ref, parts in parents]


def test_partitions_lead_to_those_that_they_are_made_of():
    graph = Graph(
        [
            DatasetNode(name="month", partitions=MONTH, inputs=(Ref("day"), Ref("zones"))),
            DatasetNode(name="week", partitions=DAY, inputs=(Ref("day", 3),), previous=True),
            DatasetNode(name="day", partitions=DAY, start=FIRST),
            DatasetNode(name="zones", partitions=("north", "south")),
        ]
    )

    assert graph.order == ["day", "zones", "month", "week"]
    days = [str(day) for day in DAY.within(*JANUARY)]
    month = texts(graph.parents("month", MONTH.parse("2026-01")))
    assert month == [("day", days), ("zones", ["north", "south"])]
    # Before its start a dataset has no partitions, and nobody waits for them.
    assert texts(graph.parents("week", DAY.parse("2026-01-02"))) == [("day", days[:2])]
    assert texts(graph.parents("week", DAY.parse("2026-01-05"))) == [("day", days[2:5])]
    assert list(graph.before("week", FIRST)) == []
    assert [str(each) for _, each in graph.before("week", DAY.parse("2026-01-02"))] == days[:1]
    found = graph.children("day", DAY.parse("2026-01-05"), graph.order, JANUARY[1])
    assert [(name, str(each)) for name, each in found] == [
        ("month", "2026-01"),
        *(("week", f"2026-01-0{day}") for day in (5, 6, 7)),
    ]


@pytest.mark.parametrize(
    ("nodes", "says"),
    [
        (
            [
                DatasetNode(name="a", partitions=DAY, inputs=(Ref("b"),)),
                DatasetNode(name="b", partitions=DAY, after=(Ref("c"),)),
                DatasetNode(name="c", partitions=DAY, inputs=(Ref("a"),)),
            ],
            "in a cycle: a -> b -> c -> a",
        ),
        ([DatasetNode(name="a", partitions=DAY, inputs=(Ref("a"),))], "in a cycle: a -> a"),
        (
            [
                DatasetNode(name="rides", partitions=DAY),
                DatasetNode(name="b", partitions=DAY, inputs=(Ref("ride"),)),
            ],
            "dataset b: there is no dataset 'ride'; did you mean rides",
        ),
        (
            [
                DatasetNode(name="a", partitions=DAY),
                DatasetNode(name="b", partitions=("north",), inputs=(Ref("a"),)),
            ],
            "dataset b has the partitions north, and its input a one for each day",
        ),
        (
            [
                DatasetNode(name="a", partitions=("south",)),
                DatasetNode(name="b", partitions=("north", "south"), inputs=(Ref("a"),)),
            ],
            "dataset b has a partition 'north', and its input a has none of that name",
        ),
        (
            [
                DatasetNode(name="a", partitions=("south",)),
                DatasetNode(name="b", partitions=DAY, inputs=(Ref("a", 2),)),
            ],
            r"past\(2\) of a, whose partitions are names",
        ),
    ],
)
def test_what_does_not_fit_together_is_refused(nodes, says):
    with pytest.raises(Refused, match=says):
        Graph(nodes)


def test_a_dataset_begins_with_the_interval_in_which_its_inputs_begin():
    graph = Graph(
        [
            DatasetNode(name="day", partitions=DAY, start=DAY.parse("2026-01-20")),
            DatasetNode(name="month", partitions=MONTH, inputs=(Ref("day"),)),
        ]
    )

    [january] = graph.range("month", None, JANUARY[1])

    assert str(january) == "2026-01"
    assert texts(graph.parents("month", january))[0][1][0] == "2026-01-20"
    undated = Graph([DatasetNode(name="day", partitions=DAY)])
    with pytest.raises(Refused, match="dataset day does not say with which day it begins"):
        undated.range("day", None, JANUARY[1])


def test_an_interval_that_is_not_over_is_not_made_and_waited_for():
    graph = Graph(
        [
            DatasetNode(name="month", partitions=MONTH, start=MONTH.parse("2026-01")),
            DatasetNode(name="day", partitions=DAY, inputs=(Ref("month"),)),
        ]
    )

    plans = make_plan(graph, [("day", FIRST)], {}, now=datetime(2026, 1, 15, tzinfo=UTC))

    assert not any(plan.due for plan in plans.values())
    assert plans["month", "2026-01"].because == "its interval is not over"
    assert plans["day", "2026-01-01"].waits_for == (("month", "2026-01"),)


# The model: a made partition remembers which versions it was made of.


@st.composite
def graphs(draw):
    """Up to six datasets of days and months, each with some of those before as inputs."""
    nodes: list[DatasetNode] = []
    for n in range(draw(st.integers(1, 6))):
        inputs = draw(
            st.lists(
                st.tuples(st.integers(0, n - 1), st.integers(1, 3)),
                max_size=3,
                unique_by=lambda i: i[0],
            )
            if n
            else st.just([])
        )
        nodes.append(
            DatasetNode(
                name=f"d{n}",
                partitions=draw(st.sampled_from([DAY, DAY, MONTH])),
                inputs=tuple(Ref(f"d{of}", past) for of, past in inputs),
                previous=draw(st.booleans()),
                start=FIRST if not inputs else None,
            )
        )
    return nodes


def made(graph, partitions, versions):
    """Make all that is due until nothing is; the keys, in order."""
    order = []
    while due := [plan for plan in make_plan(graph, partitions, versions).values() if plan.due]:
        for plan in due:
            assert plan.base is not None
            run = run_name(plan.base, 0)
            versions.setdefault(plan.dataset, {})[plan.partition] = PartitionVersion(run)
            order.append(plan.key)
    return order


@settings(max_examples=60, deadline=None)
@given(graphs(), st.data())
def test_what_changed_makes_its_descendants_stale_and_nothing_else(nodes, data):
    graph = Graph(nodes)
    until = datetime(2026, 1, 6, tzinfo=UTC)
    targets = [
        (node.name, partition)
        for node in nodes
        for partition in graph.range(node.name, None, until)
    ]
    versions: dict[str, dict[str, PartitionVersion]] = {}
    order = made(graph, targets, versions)
    all_ = make_plan(graph, targets, versions)
    assert sorted(order) == sorted(all_)  # each once
    assert {plan.state for plan in all_.values()} <= {PartitionState.CURRENT}
    if not all_:
        return
    changed = data.draw(st.sampled_from(sorted(all_)))
    name, text = changed
    parents = {
        key: {
            (ref.name, str(each))
            for ref, parts in graph.parents(key[0], graph.partition(*key))
            for each in parts
        }
        for key in all_
    }
    descendants: set[tuple[str, str]] = set()
    while more := {
        key
        for key, of in parents.items()
        if key not in descendants and of & (descendants | {changed})
    }:
        descendants |= more
    versions[name][text] = PartitionVersion(run_name(versions[name][text].base, 1))

    plans = make_plan(graph, targets, versions)

    assert {key for key, plan in plans.items() if plan.state is PartitionState.STALE} == descendants
    again = made(graph, targets, versions)
    assert sorted(again) == sorted(descendants)
    # Each after those that it is made of.
    assert all(
        again.index(key) > again.index(parent)
        for key in again
        for parent in parents[key] & descendants
    )


def test_a_new_version_of_the_code_makes_its_own_partitions_stale_and_those_made_of_them():
    nodes = [
        DatasetNode(name="a", partitions=DAY, start=FIRST),
        DatasetNode(name="b", partitions=DAY, inputs=(Ref("a"),)),
        DatasetNode(name="c", partitions=DAY, inputs=(Ref("a"),)),
    ]
    targets = [(name, FIRST) for name in "abc"]
    versions: dict[str, dict[str, PartitionVersion]] = {}
    made(Graph(nodes), targets, versions)
    newer = Graph(
        [nodes[0], DatasetNode(name="b", partitions=DAY, inputs=(Ref("a"),), code=2), nodes[2]]
    )

    plans = make_plan(newer, targets, versions)

    assert [plan.state.value for plan in plans.values()] == ["current", "stale", "current"]
    assert plans["b", "2026-01-01"].because == (
        "version 1 of the code made it, and there is version 2"
    )

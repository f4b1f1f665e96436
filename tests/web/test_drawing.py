"""Drawing a flow: each node in a column behind all that it needs, and never more than fits."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from penstock.flows.flow import NodeRow, levels_of
from penstock.web.flow_drawing import (
    COLUMNS,
    MOST_LINES,
    ROWS,
    WIDTH,
    count_text,
    draw,
    short,
    slowest,
)


def a_node(id: str, *needs: str, **fields) -> NodeRow:
    return NodeRow(id=id, flow="f", task=f"t:{id}", **{"jobs": 1, "needs": needs, **fields})


@st.composite
def flows(draws) -> list[NodeRow]:
    """Nodes that need some of those before them."""
    nodes: list[NodeRow] = []
    for number in range(draws(st.integers(1, 40))):
        most = min(number, 4)
        needs = draws(st.sets(st.integers(0, number - 1), max_size=most)) if number else ()
        nodes.append(a_node(str(number), *map(str, needs), bad=draws(st.integers(0, 1))))
    return nodes


@given(flows())
def test_boxes_do_not_touch_and_every_line_goes_to_the_right(nodes):
    drawing = draw(nodes)

    places = [(box.x, box.y) for box in drawing.boxes]
    assert len(set(places)) == len(places)
    assert all(line.x1 < line.x2 for line in drawing.lines)
    assert all(box.x + WIDTH <= drawing.width and box.y < drawing.height for box in drawing.boxes)


@given(flows())
def test_every_node_is_drawn_or_counted_once_over_all_pieces(nodes):
    drawn: list[str] = []
    left_out, first = 0, 0
    while first is not None:
        piece = draw(nodes, first)
        drawn += [box.node.id for box in piece.boxes]
        left_out += sum(rest.nodes for rest in piece.rests)
        first = piece.next

    assert len(set(drawn)) == len(drawn)
    assert len(drawn) + left_out == len(nodes)


@given(flows())
def test_a_column_is_how_many_needs_lie_before(nodes):
    levels, drawing = levels_of(nodes), draw(nodes)

    columns = sorted({box.x for box in drawing.boxes})
    for box in drawing.boxes:
        assert columns.index(box.x) == levels[box.node.id]


def test_of_a_wide_column_those_that_went_wrong_are_drawn_and_the_rest_is_counted():
    nodes = [a_node(str(number)) for number in range(5000)]
    nodes[4321] = a_node("4321", bad=1)
    nodes[17] = a_node("17", jobs=1_000_000, jobs_left=999_999)

    drawing = draw(nodes)

    assert len(drawing.boxes) == ROWS
    assert {"4321", "17"} <= {box.node.id for box in drawing.boxes}
    assert [rest.nodes for rest in drawing.rests] == [5000 - ROWS]


def test_a_long_flow_is_drawn_piece_by_piece():
    chain = [a_node(str(number), *([str(number - 1)] if number else [])) for number in range(20)]

    drawing = draw(chain)
    last = draw(chain, 16)

    assert (len(drawing.boxes), drawing.next) == (COLUMNS, COLUMNS)
    assert (len(last.boxes), last.next) == (4, None)
    assert draw(chain, 99).boxes == []


def test_lines_are_bounded_and_one_failed_job_of_a_million_is_seen():
    wide = [a_node(f"a{n}") for n in range(ROWS)]
    needs = [node.id for node in wide]
    nodes = wide + [a_node(f"{level}-{n}", *needs) for level in range(6) for n in range(ROWS)]
    nodes.append(a_node("map", jobs=1_000_000, bad=1))

    drawing = draw(nodes)
    [box] = [box for box in drawing.boxes if box.node.id == "map"]

    assert len(drawing.lines) <= MOST_LINES
    assert box.bad == 1


def test_the_slowest_is_marked_where_there_is_something_to_compare_it_with():
    assert slowest({"a": 1.0, "b": 60.0}) == "b"
    assert slowest({"a": 1.0}) is None
    assert short("shop:" + "x" * 60).startswith("…x")


def test_a_failed_map_counts_those_that_failed_and_not_those_that_ended():
    node = NodeRow(id="1", flow="1", task="a", jobs=20_000, jobs_left=0, bad=3)

    assert count_text(node, "failed") == "3 of 20,000"
    going = msgspec.structs.replace(node, jobs_left=19_000)
    assert count_text(going, "running") == "1,000 of 20,000"
    small = msgspec.structs.replace(node, jobs=40, jobs_left=20)
    assert count_text(small, "running") == "20 of 40, 3 bad"
    assert count_text(msgspec.structs.replace(node, jobs=1), "failed") == ""


def test_a_name_fits_its_box_also_one_of_wide_characters():
    assert short("shop:send") == "shop:send"
    assert sum(2 if sign > "ÿ" and sign != "…" else 1 for sign in short("漢字" * 30)) <= 21
    assert short("a" * 40).startswith("…")
    assert len(short("a" * 40)) <= 21

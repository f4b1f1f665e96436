"""Jobs as values, their ids, and the parcels they travel in."""

from __future__ import annotations

import hashlib
import os
import threading
import time
import uuid

import pytest

from penstock.enqueue.ids import (
    MOST_IN_PARCEL,
    Ids,
    bucket_for,
    derived_id,
    from_bytes,
    offset_of,
    parse_id,
    prefix_of,
    time_of,
    to_bytes,
)
from penstock.errors import Refused
from penstock.job import (
    PARCEL_BYTES,
    Job,
    Lane,
    Parcel,
    State,
    Unique,
    failed,
    lapsed,
    pack,
    put_back,
    succeeded,
    try_again,
)
from penstock.testing.clock import Clock

# Ids


def test_ids_are_uuids_of_version_seven():
    """D6."""
    made = uuid.UUID(Ids().next())

    assert (made.version, made.variant) == (7, uuid.RFC_4122)


def test_ids_sort_by_the_time_they_were_made(clock):
    """B36: ids are ordered."""
    ids = Ids(clock)
    made = []
    for _ in range(50):
        made += [ids.next("a"), ids.first()]
        clock.advance(seconds=0.0007)

    assert sorted(made[::2]) == made[::2]
    assert sorted(made[1::2]) == made[1::2]
    assert len(set(made)) == len(made)


def test_an_id_tells_when_it_was_made(clock):
    assert time_of(Ids(clock).next()) == pytest.approx(clock.now(), abs=1e-6)
    assert time_of(derived_id("a")) is None


def test_neighbours_of_a_lane_follow_on_from_one_another(clock):
    ids = Ids(clock)

    made = [ids.next("a") for _ in range(5)]

    assert len({prefix_of(job_id) for job_id in made}) == 1
    assert [offset_of(job_id) for job_id in made] == [0, 1, 2, 3, 4]


def test_lanes_have_runs_of_their_own(clock):
    ids = Ids(clock)
    made = []

    for lane in "ababab":
        made.append((lane, ids.next(lane)))
        clock.advance(seconds=0.00003)

    prefixes = {lane: {prefix_of(i) for other, i in made if other == lane} for lane in "ab"}
    assert [len(prefixes[lane]) for lane in "ab"] == [1, 1]
    assert prefixes["a"] != prefixes["b"]


def test_a_job_made_after_a_pause_begins_a_run(clock):
    """A store need not ask whether others of its run were sent."""
    ids = Ids(clock)
    first = ids.next("a")
    clock.advance(seconds=0.0003)

    second = ids.next("a")

    assert prefix_of(second) != prefix_of(first)
    assert offset_of(second) == 0


def test_a_run_ends_when_it_is_full_or_old(clock):
    ids = Ids(clock)
    full = [ids.next() for _ in range(MOST_IN_PARCEL + 1)]
    clock.advance(seconds=0.002)

    assert prefix_of(full[-1]) != prefix_of(full[0])
    assert offset_of(full[-1]) == 0
    assert prefix_of(ids.next()) != prefix_of(full[-1])


def test_a_clock_that_goes_back_makes_no_id_twice(clock: Clock):
    ids = Ids(clock)
    made = []
    for _ in range(20):
        made += [ids.next(), ids.first()]
        clock.jump(-0.5)

    assert len(set(made)) == len(made)


def test_threads_never_share_an_id(clock):
    ids = Ids(clock)
    made = [[] for _ in range(8)]

    threads = [
        threading.Thread(target=lambda mine=mine: mine.extend(ids.next() for _ in range(500)))
        for mine in made
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len({job_id for mine in made for job_id in mine}) == 4000


def test_a_fork_goes_on_with_ids_of_its_own(clock):
    """A fork after use is safe."""
    ids = Ids(clock)
    before = ids.next()
    reading, writing = os.pipe()

    child = os.fork()
    if child == 0:
        os.write(writing, "".join(ids.next() for _ in range(3)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = os.read(reading, 1000).decode()
    mine = [ids.next() for _ in range(3)]
    os.close(reading)
    os.close(writing)

    children = [theirs[start : start + 36] for start in range(0, len(theirs), 36)]
    assert len({before, *mine, *children}) == 7
    assert prefix_of(children[0]) != prefix_of(before)


def test_many_lanes_are_not_remembered_for_ever(clock):
    ids = Ids(clock)

    made = {ids.next(lane) for lane in range(5000)}

    assert len(made) == 5000
    assert len(ids._runs) <= 1001


def test_a_derived_id_is_the_same_for_the_same_parts():
    """D60."""
    assert derived_id("nightly", "2026-11-15") == derived_id("nightly", "2026-11-15")
    assert derived_id("a", "bc") != derived_id("ab", "c")
    assert derived_id("a").startswith("ff")
    assert uuid.UUID(derived_id("a")).version == 8


def test_derived_ids_come_after_all_others():
    in_a_thousand_years = Clock(time.time() + 1000 * 366 * 86400.0)

    assert min(derived_id("slot", str(n)) for n in range(100)) > Ids(in_a_thousand_years).first()


def test_an_id_goes_to_bytes_and_back():
    made = Ids().next()

    assert from_bytes(to_bytes(made)) == made
    assert len(to_bytes(made)) == 16


def test_any_spelling_of_an_id_is_read():
    made = Ids().next()

    assert parse_id(made.upper()) == made
    assert parse_id(f" {made.replace('-', '')} ") == made
    with pytest.raises(Refused, match="'seven'"):
        parse_id("seven")


# Jobs


def test_jobs_made_one_after_the_other_have_ids_of_their_own():
    assert Job(task="a").id != Job(task="a").id


@pytest.mark.parametrize(
    "fields",
    [
        {"run_at": 1.0},
        {"key": "a"},
        {"unique": Unique("a")},
        {"expires_at": 1.0},
        {"tags": {"a": "b"}},
        {"search": {"a": "b"}},
        {"at_most_once": True},
        {"attempt": 1},
    ],
)
def test_a_job_with_anything_special_is_not_plain(fields):
    assert Job(task="a").plain
    assert not Job(task="a", **fields).plain


def test_required_tags_are_part_of_the_lane():
    job = Job(task="a", queue="q", version=2, priority=3, runs_on=("gpu",))

    assert job.plain
    assert job.lane == Lane("q", "a", 2, 3, ("gpu",))


def test_a_lane_has_one_number_wherever_it_is_computed():
    lane = Lane("mail", "mail:send", 1, 0, ("b", "a"))

    assert lane.hash == Lane("mail", "mail:send", 1, 0, ("a", "b")).hash
    assert lane.hash != Lane("mail", "mail:send", 2, 0, ("a", "b")).hash
    assert -(2**63) <= lane.hash < 2**63


def test_a_job_without_an_app_says_how_to_make_one_with():
    with pytest.raises(TypeError, match=r"task\.job"):
        Job(task="a").enqueue()


# Outcomes


def test_the_outcomes_count_what_they_stand_for():
    """C8."""
    made = [succeeded(b"1"), failed("x"), try_again("x", 5.0), put_back("x"), lapsed()]

    assert [outcome.state for outcome in made] == [
        State.SUCCEEDED,
        State.FAILED,
        State.READY,
        State.READY,
        State.READY,
    ]
    assert [(o.failures, o.lapses, o.repeats) for o in made] == [
        (0, 0, 0),
        (1, 0, 0),
        (1, 0, 0),
        (0, 0, 0),
        (0, 1, 0),
    ]


# Parcels


def neighbours(count, body=b"{}", lane="a", **fields):
    ids = Ids(Clock())
    return [Job(task=lane, id=ids.next(), body=body, **fields) for _ in range(count)]


def test_plain_neighbours_travel_in_one_parcel():
    jobs = neighbours(5)

    [parcel], single = pack(jobs)

    assert single == []
    assert parcel == Parcel(jobs[0].id, jobs[0].lane, [b"{}"] * 5)
    assert parcel.ids() == [job.id for job in jobs]


def test_jobs_that_are_not_plain_travel_alone():
    plain, tagged = neighbours(1)[0], Job(task="a", tags={"a": "b"})

    parcels, single = pack([tagged, plain])

    assert [parcel.id for parcel in parcels] == [plain.id]
    assert single == [tagged]


def test_a_gap_begins_a_new_parcel():
    jobs = neighbours(5)

    parcels, _ = pack([jobs[0], jobs[1], jobs[3], jobs[4]])

    assert [parcel.ids() for parcel in parcels] == [
        [jobs[0].id, jobs[1].id],
        [jobs[3].id, jobs[4].id],
    ]


def test_jobs_in_another_order_or_twice_are_each_packed():
    jobs = neighbours(3)

    parcels, _ = pack([jobs[2], jobs[0], jobs[1], jobs[1]])

    packed = [job_id for parcel in parcels for job_id in parcel.ids()]
    assert sorted(packed) == sorted([*(job.id for job in jobs), jobs[1].id])


def test_lanes_do_not_mix():
    ids = Ids(Clock())
    jobs = [Job(task="ab"[n % 2], id=ids.next(), body=b"%d" % n) for n in range(4)]

    parcels, _ = pack(jobs)

    assert {(parcel.lane.task, body) for parcel in parcels for body in parcel.bodies} == {
        ("a", b"0"),
        ("b", b"1"),
        ("a", b"2"),
        ("b", b"3"),
    }


def test_a_parcel_is_never_too_large():
    many, heavy = neighbours(300), neighbours(20, body=b"x" * 10_000)

    parcels, _ = pack([*many, *heavy])

    assert max(len(parcel.bodies) for parcel in parcels) <= MOST_IN_PARCEL
    assert max(sum(map(len, parcel.bodies)) for parcel in parcels) <= PARCEL_BYTES
    assert sum(len(parcel.bodies) for parcel in parcels) == 320


def test_one_body_larger_than_a_parcel_has_one_to_itself():
    [parcel], _ = pack(neighbours(1, body=b"x" * (PARCEL_BYTES + 1)))

    assert len(parcel.bodies) == 1


def test_a_parcel_made_before_is_handed_on():
    parcel = Parcel(Ids().first(), Lane("q", "a"), [b"1", b"2"])

    assert pack([parcel]) == ([parcel], [])


def test_hashes_that_are_stored_never_change():
    """The first bytes of SHA-256, which PostgreSQL has as well: SQL makes the same lanes."""
    lane = Lane("default", "task", 2, -1, ("gpu", "x86"), "shop")
    name = b'["shop","default","task",2,-1,["gpu","x86"]]'

    assert lane.hash == int.from_bytes(hashlib.sha256(name).digest()[:8], "big", signed=True)
    assert lane.hash == 2843501565341462740
    name = ("schedule", "nightly", "0.000000")
    assert derived_id(*name) == "ff788af6-213f-8dc2-82d7-0da0ef40c399"
    assert derived_id(*name, bucket="nightly") == "ff788af6-213f-8dc2-8a87-0da0ef40c399"
    assert [bucket_for(text) for text in ("", "a", "zürich")] == [910, 810, 128]

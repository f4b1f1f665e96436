"""Releases: which one this is, and which of two is the older."""

from __future__ import annotations

from importlib.metadata import version

from penstock.app.version import RELEASE, age_order


def test_this_is_the_release_that_is_installed():
    assert version("penstock-queue") == RELEASE


def test_releases_are_ordered_by_age():
    newest_first = ["1.0", "0.10", "0.2.1", "0.2.0", "0.2.0rc2", "0.2.0rc1", "0.2.0b1", "0.2.0a1"]
    newest_first += ["0.2.0.dev3", "0.1.0", ""]

    assert sorted(newest_first, key=age_order) == newest_first[::-1]


def test_trailing_noughts_make_no_difference():
    assert age_order("1.0") == age_order("1.0.0")

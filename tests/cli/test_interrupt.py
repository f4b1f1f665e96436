"""Ctrl-C while Spark works: an end, and no stack of whatever it interrupted."""

from __future__ import annotations

import logging

from penstock.cli.spark_interrupt import quietly_interrupted


def test_what_py4j_says_of_an_interrupted_wait_is_left_out(caplog):
    with quietly_interrupted():
        logging.warning("of something else")  # noqa: LOG015  as py4j does
        logging.error("KeyboardInterrupt while sending command.")  # noqa: LOG015  as above

    logging.error("Exception while sending command.")  # noqa: LOG015  as above
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("WARNING", "of something else"),
        ("ERROR", "Exception while sending command."),
    ]

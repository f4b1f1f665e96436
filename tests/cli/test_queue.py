"""queue: options are shown, set, reset; a queue is created and dropped."""

from __future__ import annotations

import json


def test_options_are_set_shown_reset_and_the_queue_is_dropped(shop):
    shop("enqueue", "shop:send", "ada")
    assert "no queue has options" in shop("queue").stderr

    words = ("timeout=10m", "running=4", "--reason", "big files")
    assert "queue mail: timeout=600s, running=4" in shop("queue", "set", "mail", *words).stdout

    [shown] = map(json.loads, shop("queue", "show", "--json").stdout.splitlines())
    assert shown["override"] == {"timeout": 600.0, "running": 4}
    assert shown["effective"] == shown["override"]
    assert (shown["queue"], shown["reason"], shown["declared"]) == ("mail", "big files", {})
    assert "big files" in shop("queue", "show", "mail").stdout
    assert "queue mail exists" in shop("queue", "create", "mail", code=2).stderr
    assert "queue set what?" in shop("queue", "set", "mail", code=2).stderr
    assert "queue mail: running=4" in shop("queue", "reset", "mail", "timeout").stdout
    assert "queue mail has 1 job. delete it?" in shop("queue", "drop", "mail", code=1).stderr
    assert "knows a queue 'mial'; similar: mail" in shop("queue", "drop", "mial", code=2).stderr
    dropped = shop("queue", "drop", "mail", "--yes").stdout
    assert "queue mail is dropped: 1 job deleted" in dropped
    assert "no queue has options" in shop("queue").stderr
    assert "no options of its own" in shop("queue", "reset", "mail", code=2).stderr


def test_a_queue_that_nobody_knows_is_named_once(shop):
    shop("enqueue", "shop:send", "ada")

    typed = shop("queue", "set", "mial", "timeout=60").stderr
    again = shop("queue", "set", "mial", "timeout=90").stderr
    known = shop("queue", "set", "mail", "timeout=60").stderr

    assert "knows a queue 'mial'; similar: mail; the options apply as soon as" in typed
    assert "knows a queue" not in again + known

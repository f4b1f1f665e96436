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
    assert "queue mail is dropped: 1 jobs are deleted" in shop("queue", "drop", "mail").stdout
    assert "no queue has options" in shop("queue").stderr
    assert "no options of its own" in shop("queue", "reset", "mail", code=2).stderr

"""cancel, retry, delete: by ids, by filter, asked about first."""

from __future__ import annotations

import pytest


@pytest.fixture
def waiting(shop):
    for name in ("ada", "bob", "eve"):
        shop("enqueue", "shop:send", name)
    shop("enqueue", "shop:add", "1", "2")
    return shop


def ids(cli, *words):
    return [job["id"] for job in cli.lines("find", *words)]


def test_cancel_and_retry_by_id(waiting):
    job_id = ids(waiting, "task:shop:add")[0]

    assert waiting("cancel", job_id).stdout == f"{job_id} cancelled\n"
    again = waiting("cancel", job_id, code=1).stderr
    assert "was not changed. It was cancelled" in again
    assert waiting.json("retry", job_id)["done"] == [job_id]
    assert ids(waiting, "state:cancelled") == []


def test_a_job_that_has_ended_is_copied_with_its_arguments_or_with_others(waiting):
    job_id = ids(waiting, "task:shop:add")[0]
    assert "has not ended" in waiting("copy", job_id, code=2).stderr
    waiting("cancel", job_id)

    made = waiting.json("copy", job_id, "--reason", "once more")
    other = waiting("copy", job_id, "--args", '{"a": 40, "b": 2}', "--app", "shop").stdout.strip()
    bad = waiting("copy", job_id, "--args", '{"a": "x"}', "--app", "shop", code=2).stderr

    assert made["copy_of"] == job_id
    assert set(ids(waiting, "task:shop:add", "state:ready")) == {made["id"], other}
    assert "add(" in bad
    audit = waiting("history", "--audit").stdout
    assert f"enqueued job {made['id']} a copy of {job_id}" in audit
    assert "once more" in audit


def test_delete_forgets_the_job_and_keeps_its_history(waiting):
    job_id = ids(waiting, "task:shop:add")[0]

    waiting("delete", job_id)

    assert ids(waiting, "task:shop:add") == []
    assert [row["kind"] for row in waiting.lines("history", job_id)] == ["delete"]


def test_by_filter_the_number_is_shown_and_asked_about(waiting):
    declined = waiting("cancel", "task:shop:send", answer="n\n", code=1)
    assert "3 jobs match. cancel them?" in declined.stderr
    assert ids(waiting, "state:cancelled") == []

    agreed = waiting("cancel", "task:shop:send", answer="y\n")

    assert agreed.stdout.endswith("3 jobs cancelled\n")
    assert len(ids(waiting, "state:cancelled")) == 3


def test_yes_does_not_ask_and_json_insists_on_it(waiting):
    assert "add --yes" in waiting("cancel", "queue:mail", "--json", code=2).stderr

    done = waiting.json("cancel", "queue:mail", "-arg.to:eve", "--yes")

    assert done == {"verb": "cancel", "matched": 2, "count": 2}
    assert waiting("retry", "queue:mail", "--yes").stdout == "2 jobs ready again\n"
    assert waiting("retry", "queue:mail", "--yes").stdout == "0 jobs ready again\n"


def test_jobs_that_wait_for_their_time_are_found_and_cancelled(waiting):
    later = waiting("enqueue", "shop:add", "3", "4", "--delay", "1h").stdout.strip()

    assert ids(waiting, "due:later") == [later]
    assert later not in ids(waiting, "-due:later")
    assert waiting("cancel", "due:later", "--yes").stdout == "1 job cancelled\n"
    assert ids(waiting, "state:cancelled") == [later]
    assert len(ids(waiting, "due:now")) == 4


def test_jobs_that_wait_for_their_time_are_due_at_once_by_a_retry(waiting):
    later = waiting("enqueue", "shop:add", "3", "4", "--delay", "1h").stdout.strip()

    assert waiting("retry", "due:later", "--yes").stdout == "1 job ready again\n"
    assert ids(waiting, "due:later") == []
    assert later in ids(waiting, "due:now")


def test_more_than_a_page_is_acted_on(shop):
    file = shop.folder / "rows.jsonl"
    file.write_text("\n".join(f"[{number}, 1]" for number in range(2500)))
    shop("enqueue", "shop:add", "--many", str(file))

    assert shop("cancel", "task:shop:add", "--yes").stdout == "2,500 jobs cancelled\n"
    assert shop("delete", "state:cancelled", "--yes").stdout == "2,500 jobs deleted\n"


def test_saying_nothing_or_both_is_refused(waiting):
    job_id = ids(waiting)[0]

    assert "Give ids, or a filter" in waiting("delete", code=2).stderr
    assert "not both" in waiting("delete", job_id, "state:failed", code=2).stderr
    assert "is not a job id" in waiting("delete", "everything", code=2).stderr

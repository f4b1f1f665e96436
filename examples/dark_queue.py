"""A queue with Dark's policy: two retries, five minutes apart, then deleted; pause and block.

    python examples/dark_queue.py

Dark's queues (https://github.com/darklang/dark, docs/eventsV2.md) run an event again five minutes
after an error, at most twice, and then delete it. A user can pause a handler, an operator can block
it, and a block wins. The test clock makes ten minutes pass at once.
"""

from penstock import App, Retry, State
from penstock.rules.rule import Rule, RuleKind, rule_id

DARK = Retry(limit=2, delay=300, then="delete")

app = App("memory:")
runs: list[str] = []
broken = {"always": 99, "once": 1}


@app.task(name="shop:charge", queue="events", retry=DARK)
def charge(kind: str) -> str:
    """Fails as often as `broken` says."""
    runs.append(kind)
    if broken.get(kind, 0) > 0:
        broken[kind] -= 1
        raise ConnectionError("the bank does not answer")
    return "charged"


def main() -> None:
    """An event that fails once, one that always fails, and a queue that is paused and blocked."""
    with app.testing() as t:
        once, always = charge.enqueue("once"), charge.enqueue("always")
        for minute in (0, 5, 10, 15):
            print(f"after {minute:2} minutes, runs: {len(t.drain())}")
            t.clock.advance(minutes=5)

        assert runs.count("once") == 2  # the error, and the retry five minutes later
        assert once.state() is State.SUCCEEDED
        assert runs.count("always") == 3  # at 0, 5 and 10 minutes
        assert always.state() is None  # then it is deleted; its attempts stay in the history
        attempts = [event for event in t.broker.history(job=always.id) if event.kind == "attempt"]
        print(f"the one that always fails: {[str(event.state) for event in attempts]}")

        runs.clear()
        t.broker.put(Rule(RuleKind.PAUSE, task="shop:charge", author="ada"))
        charge.enqueue_many([("fine",) for _ in range(1500)])  # accepted all the same
        print(f"paused: {t.broker.count()[0].paused} jobs wait, {len(t.drain())} ran")

        t.broker.put(Rule(RuleKind.BLOCK, task="shop:charge", author="operations"))
        t.broker.clear(Rule, rule_id(RuleKind.PAUSE, task="shop:charge"))
        [job, *_] = t.jobs(charge, "ready")
        print(f"resumed, but blocked: {t.broker.why(job.id).sentence}")
        assert t.drain() == []

        for _ in range(9):  # to unblock many times is harmless: each event runs once
            t.broker.clear(Rule, rule_id(RuleKind.BLOCK, task="shop:charge"))
        print(f"unblocked: {len(t.drain())} ran")
        assert runs == ["fine"] * 1500


if __name__ == "__main__":
    main()

"""adopt: have a store belong to this environment, so that its workers start."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.options import Json, Reason, Store, person, with_options


@with_options
def adopt(
    *,
    off: Annotated[
        bool, typer.Option("--off", help="Of no environment: any worker may run its jobs.")
    ] = False,
    reason: Reason = "",
    store: Store,
    json: Json = False,
) -> None:
    """Have a store belong to this environment: PENSTOCK_ENVIRONMENT, else the profile.

    A store belongs to the environment that ran its jobs first; workers of another one refuse to
    start, so that a clone of a production database stays idle. Adopt the clone to run its jobs.

    Example: penstock adopt --reason "copy of last night"
    """
    from penstock.app.environment import VARIABLE, environment_of, record_of
    from penstock.broker.environment import Environment
    from penstock.cli import output
    from penstock.cli.store_choice import open_actions, store_url
    from penstock.errors import Refused

    own = environment_of(store_url(*store))
    if not own and not off:
        raise Refused(
            f"this process is of no environment: set {VARIABLE}, or use a profile; --off lets any "
            "worker run the store's jobs"
        )
    with open_actions(store, person(admin=True)) as (broker, actions):
        before = ", ".join(each.environment for each in broker.records(Environment))
        actions.adopt(None if off else record_of(broker, own, adopts=True), reason)
    after = "" if off else own
    if json:
        output.print_json({"environment": after, "before": before})
        return
    now = f"of the environment {own!r}" if after else "of no environment: any worker runs its jobs"
    was = "" if before == after else f"; it was of {before or 'none'}"
    output.print_text(f"the store is {now}{was}")

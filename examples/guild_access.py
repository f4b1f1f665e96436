"""A flow with shared state (Guild's story): check access, update membership, reward everywhere.

    python examples/guild_access.py

The flow has one state: each of its jobs can read it and merge changes into it. The rewards are
jobs on queues of their own (`manage-reward:discord`), spawned when it is known which are needed;
when all have ended, the next job runs, once. The flow is found by its user. No worker waits for
anything; the testing kit runs the jobs, in this process: in memory, and on a Redis.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from penstock import App, Retry, State, current_job
from penstock.testing.redis import RedisServer

app = App("memory:")
down = {"telegram"}


@dataclass
class Reward:
    platform: str
    role: str


@dataclass
class AccessState:
    """What the jobs of the flow share."""

    user: int = 0
    guild: int = 0
    access: bool | None = None
    member: bool = False
    rewards: dict[str, str] = field(default_factory=dict)
    message: str = ""


@app.task(queue="access-check")
def check_access(user: int) -> bool:
    access = user > 10
    current_job().flow.state.merge(access=access)
    return access


@app.task(queue="update-membership")
def update_membership(access: bool) -> list[Reward]:
    state = current_job().flow.state
    state.merge(member=access)
    guild = state.read(AccessState).guild
    return [
        Reward(platform, f"member of {guild}") for platform in ("discord", "telegram", "github")
    ]


@app.task(queue="prepare-rewards")
def manage_rewards(rewards: list[Reward]) -> int:
    """The parent: one child per reward, each on the queue of its platform, and what follows."""
    children = [
        manage_reward.options(queue=f"manage-reward:{reward.platform}").job(reward)
        for reward in rewards
    ]
    current_job().spawn(children, then=tell_user.job([child.output for child in children]))
    return len(children)


@app.task(retry=Retry(limit=1, delay=0, on=(ConnectionError,)))
def manage_reward(reward: Reward) -> str:
    """One reward: reads the flow's state, and merges its result into it."""
    flow = current_job().flow
    if reward.platform in down:
        raise ConnectionError(f"{reward.platform} does not answer")
    user = flow.state.read(AccessState).user
    flow.state.merge(rewards={reward.platform: f"user {user} is {reward.role}"})
    return reward.platform


@app.task(queue="tell-user")
def tell_user(platforms: list[str]) -> str:
    message = f"rewarded on {', '.join(platforms)}"
    current_job().flow.state.merge(message=message)
    return message


def story(url: str) -> Iterator[str]:
    """A user joins while one platform is down; later the failed job is retried."""
    down.add("telegram")
    with app.testing(url=url) as t:
        joins = app.flow("access", find={"user": 62, "role": [7, 9]}, state=AccessState(62, 1985))
        members = update_membership.job(check_access.job(62).output)
        joins.enqueue(manage_rewards.job(members.output))
        t.drain()

        flow = app.find_flow("access", user=62)
        assert flow is not None
        state = flow.state_as(AccessState)
        yield f"access {state.access}, member {state.member}, rewards {sorted(state.rewards)}"
        yield f"done: {flow.ended}, without success: {flow.bad}, message: {state.message!r}"
        [failed] = [job for job in flow.jobs if job.state is State.FAILED]
        stored = t.broker.get(failed.id)
        assert stored is not None
        yield f"failed in {stored.queue}: {(stored.error or '').splitlines()[0]}"

        down.clear()
        yield f"tried again: {flow.retry()} jobs"
        t.drain()
        yield f"{flow.state_as(AccessState).message}, without success: {flow.bad}"
        yield flow.state_as(AccessState).rewards["telegram"]

        by_role = app.find_flow("access", role=9)
        yield f"found by its role as well: {by_role is not None and by_role.id == flow.id}"
        flow.delete()
        yield f"deleted, and found no more: {app.find_flow('access', user=62) is None}"


def main() -> None:
    """In memory, and once more on a Redis of its own."""
    lines = list(story("memory:"))
    print("\n".join(lines))
    with RedisServer() as redis:
        print(f"the same on Redis: {list(story(redis.url())) == lines}")


if __name__ == "__main__":
    main()

"""A flow: check a user's access, reward them on every platform, and finish when all is done.

    python examples/rewards_flow.py

A job whose arguments are other jobs' outputs waits for those jobs. One platform fails here: the
jobs that need it are cancelled, and become ready when the failed job is retried. No worker waits.
The testing kit runs the jobs, in this process.
"""

from penstock import App, State, current_job

app = App("memory:")
down = {"telegram"}


@app.task
def check(user: int) -> bool:
    return user > 10


@app.task
def reward(platform: str, access: bool) -> str:
    if platform in down:
        raise ConnectionError(f"{platform} does not answer")
    return f"{platform}: {'granted' if access else 'revoked'}"


@app.task
def finish(rewards: list[str]) -> str:
    return ", ".join(rewards)


@app.task
def survey(folder: str) -> int:
    """Spawn a job per page, and one that runs when all have ended."""
    pages = [f"{folder}/{number}" for number in range(3)]
    read = count_words.map(pages)
    current_job().spawn(read, then=add_up.job(read.output))
    return len(pages)


@app.task
def count_words(page: str) -> int:
    return len(page)


@app.task
def add_up(numbers: list[int]) -> int:
    return sum(numbers)


def main() -> None:
    """The flow of the rewards, with a platform that is down, and a flow that grows as it runs."""
    with app.testing() as t:
        access = check.job(user=62)
        rewards = reward.map(["discord", "telegram", "email"], access=access.output)
        handle = finish.job(rewards.output).enqueue()  # all five jobs are stored, or none
        print(f"waits: {handle.why()}")

        t.drain()
        [failed] = t.jobs(reward, State.FAILED)
        print(f"finish is {handle.state()}, because {failed.task} is {failed.state}")

        down.clear()
        t.broker.act("retry", [failed.id])
        print(f"after the retry, finish is {handle.state()}")
        t.drain()
        print(handle.result())

        down.add("email")
        rewards = reward.map(["discord", "email"], access=check.job(user=7).output)
        some = finish.options(on_failure="continue").enqueue(rewards.output)
        t.drain()
        print(f"with what there is: {some.result()}")

        survey.enqueue("books")
        t.drain()
        [total] = t.jobs(add_up)
        print(f"words on all pages: {app.handle(total.id).result()}")


if __name__ == "__main__":
    main()

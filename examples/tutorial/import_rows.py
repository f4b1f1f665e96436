"""A long task that continues where it stopped, and does the expensive part once."""

from penstock import App, current_job

app = App()


def download(url: str) -> list[str]:
    """Stand for something slow that should not be done twice."""
    return [f"{url} row {number}" for number in range(100)]


@app.task
def import_rows(url: str) -> int:
    """Import rows one by one, in as many attempts as it takes."""
    job = current_job()
    rows = job.step("download", download, url)  # remembered: a second attempt does not call it
    done = job.last_snapshot(int) or 0  # where the attempt before got to
    for number in range(done, len(rows)):
        job.log.info("imported %s", rows[number])
        job.progress((number + 1) / len(rows), rows[number])
        if number % 10 == 9:
            job.snapshot(number + 1)
    return len(rows)

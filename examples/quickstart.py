"""Ten lines: a task, and jobs that call it."""

import time

from penstock import App

app = App()


@app.task
def resize(image: int) -> str:
    time.sleep(0.2)
    return f"image {image} is small now"


if __name__ == "__main__":
    batch = resize.enqueue_many([(number,) for number in range(100)], id="first-hundred")
    print(f"{batch.count} jobs are stored")

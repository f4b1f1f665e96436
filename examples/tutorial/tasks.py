"""A first task."""

from penstock import App

app = App()


@app.task
def add(left: int, right: int) -> int:
    """Add two numbers, later and elsewhere."""
    return left + right

"""The task of the examples in this folder. A worker runs it: penstock worker reminders.py."""

from penstock import App

app = App()


@app.task(name="shop:remind", queue="mail")
def remind(customer: int, text: str) -> str:
    return f"customer {customer}: {text}"

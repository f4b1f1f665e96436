"""Jobs from SQL: a trigger, psql, or a program in another language enqueues; Python runs them.

python examples/sql_trigger.py
"""

import os

import psycopg
from psycopg.errors import InvalidParameterValue

from penstock import App
from penstock.testing.postgres import Server
from penstock.worker import Worker

app = App()  # PENSTOCK_URL

TRIGGER = """
create function welcome() returns trigger language plpgsql as $$
begin
    perform penstock.enqueue(
        'shop:welcome',
        jsonb_build_object('customer', new.id, 'name', new.name),
        queue => 'mail',
        unique_key => 'welcome-' || new.id
    );
    return new;
end $$;
create trigger welcome after insert on customers for each row execute function welcome();
"""


@app.task(name="shop:welcome", queue="mail")
def welcome(customer: int, name: str) -> str:
    """What the trigger asks for, by its name and the names of its arguments."""
    return f"welcome {name}, number {customer}"


def main() -> None:
    """Two customers come and one is taken back; then somebody types at psql."""
    with Server() as server, psycopg.connect(server.url(), autocommit=True) as shop:
        os.environ["PENSTOCK_URL"] = server.url()
        _ = app.broker  # makes the schema, as `penstock migrate up` does
        shop.execute("create table customers (id serial primary key, name text)")
        shop.execute(TRIGGER)

        shop.execute("insert into customers (name) values ('ada'), ('bob')")
        with shop.transaction(force_rollback=True):
            shop.execute("insert into customers (name) values ('mallory')")
        Worker(app, drain=True).work()
        for event in app.broker.history():
            print(app.handle(event.job or "").result())

        call = "select penstock.enqueue('shop:welcome', '{\"customer\": 3}', priority => 101)"
        try:
            shop.execute(call)
        except InvalidParameterValue as error:
            print(error.diag.message_primary)
        app.close()


if __name__ == "__main__":
    main()

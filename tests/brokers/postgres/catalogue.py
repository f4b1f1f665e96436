"""What a database's catalogue says of the schema penstock, fit to be compared."""

from __future__ import annotations

from typing import Any

import psycopg

_QUESTIONS = {
    "tables": """
        select c.relname, c.relkind::text, c.relrowsecurity, c.reloptions::text,
               pg_get_expr(c.relpartbound, c.oid)
          from pg_class c
         where c.relnamespace = 'penstock'::regnamespace and c.relkind in ('r', 'p', 'S', 'v')
    """,
    "columns": """
        select c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
               pg_get_expr(d.adbin, d.adrelid), a.attidentity::text, a.attstorage::text
          from pg_attribute a
          join pg_class c on c.oid = a.attrelid and c.relkind in ('r', 'p', 'v')
          left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
         where c.relnamespace = 'penstock'::regnamespace and a.attnum > 0 and not a.attisdropped
    """,
    "indexes": """
        select tablename, indexname, indexdef from pg_indexes where schemaname = 'penstock'
    """,
    "constraints": """
        select conrelid::regclass::text, conname, pg_get_constraintdef(oid)
          from pg_constraint
         where connamespace = 'penstock'::regnamespace
    """,
    "policies": """
        select tablename, policyname, cmd, qual, with_check
          from pg_policies
         where schemaname = 'penstock'
    """,
    "functions": """
        select p.oid::regprocedure::text, pg_get_functiondef(p.oid)
          from pg_proc p
         where p.pronamespace = 'penstock'::regnamespace
    """,
    "sequences": """
        select sequencename, data_type::text, start_value, min_value, max_value, increment_by,
               cycle, cache_size
          from pg_sequences
         where schemaname = 'penstock'
    """,
}


def catalogue(url: str) -> dict[str, set[tuple[Any, ...]]]:
    """Everything in the schema, but for the partitions by day."""
    with psycopg.connect(url) as connection:
        days = {
            name
            for (name,) in connection.execute(
                "select relname from pg_class where relnamespace = 'penstock'::regnamespace"
                " and relname ~ '_[0-9]{8}(_|$)'"
            )
        }
        return {
            what: {
                row
                for row in connection.execute(question).fetchall()
                if not {str(part).removeprefix("penstock.") for part in row[:2]} & days
            }
            for what, question in _QUESTIONS.items()
        }

-- Attempts as one row each, with what the questions ask of them; unlogged and without an index, for
-- every question goes through all of them.
create unlogged table attempts (
    position text not null,
    job text not null,
    queue text not null,
    task text not null,
    version integer not null,
    state text not null,
    reason text,
    run_at timestamptz not null,
    started_at timestamptz not null,
    ended_at timestamptz not null,
    worker text not null,
    tenant text not null,
    error text
);

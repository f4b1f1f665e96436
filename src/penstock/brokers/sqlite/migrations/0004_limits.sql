-- Rules by version, tag and key, and limits. The key of a table cannot be changed: it is made anew.
create table penstock_rule_before as select * from penstock_rule;
drop table penstock_rule;
create table penstock_rule (
    kind text not null,
    queue text not null,  -- '' is any
    task text not null,
    version integer not null,  -- -1 is any
    tag text not null,  -- its name, '' is any
    tag_value text not null,
    key text not null,
    per_key integer not null,  -- a limit that counts each key on its own
    author text not null,
    reason text not null,
    created_at real not null,
    until real,
    running integer,  -- of a limit: at most so many at a time
    rate_jobs integer,  -- and so many starts in so many seconds
    rate_seconds real,
    primary key (kind, queue, task, version, tag, tag_value, key, per_key)
) without rowid, strict;
insert into penstock_rule (
    kind, queue, task, version, tag, tag_value, key, per_key, author, reason, created_at, until
)
select kind, queue, task, -1, '', '', '', 0, author, reason, created_at, until
  from penstock_rule_before;
drop table penstock_rule_before;

-- What was claimed under a limit's rate, for as long as it counts. Monotonic times, as of leases.
create table penstock_start (
    id integer primary key,
    queue text not null,  -- these four are the limit's, and the key that is counted
    task text not null,
    per_key integer not null,
    key text not null,
    boot text not null,
    at real not null,
    made_at real not null,  -- by the wall clock: all that is left to go by after another boot
    jobs integer not null
) strict;
-- Serves claim.
create index penstock_start_limit on penstock_start (queue, task, per_key, key);

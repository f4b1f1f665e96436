-- Arithmetic on ids and parcels, for the other functions.

-- The id that is so many places after this one, in the same run of ids.
create or replace function penstock.id_after(p_id uuid, p_places integer) returns uuid
language sql immutable strict parallel safe
as $$
    select encode(
        substr(uuid_send(p_id), 1, 14)
        || decode(lpad(to_hex((get_byte(uuid_send(p_id), 14) << 8) + get_byte(uuid_send(p_id), 15) + p_places), 4, '0'), 'hex'),
        'hex'
    )::uuid
$$;

-- How many bytes the first p_jobs bodies of a parcel have; capped at 1 GB, the largest value, since the
-- lengths of a damaged parcel may be anything.
create or replace function penstock.total_of(p_lengths bytea, p_jobs integer) returns integer
language sql immutable strict parallel safe
as $$
    select least(coalesce(sum(
        get_byte(p_lengths, 4 * i) + (get_byte(p_lengths, 4 * i + 1) << 8)
        + (get_byte(p_lengths, 4 * i + 2) << 16) + (get_byte(p_lengths, 4 * i + 3)::bigint << 24)
    ), 0), 1073741823)::integer
      from generate_series(0, p_jobs - 1) as i
$$;

-- The time in an id, in seconds since the epoch.
create or replace function penstock.made_at(p_id uuid) returns double precision
language sql immutable strict parallel safe
as $$
    select ('x' || left(replace(p_id::text, '-', ''), 12))::bit(48)::bigint / 1000.0::double precision
         + ('x' || substr(replace(p_id::text, '-', ''), 14, 3))::bit(12)::integer / 4096000.0::double precision
$$;

-- The smallest id of this time.
create or replace function penstock.first_id(p_at double precision) returns uuid
language sql immutable strict parallel safe
as $$
    select (lpad(to_hex(greatest(0, floor(p_at * 1000))::bigint), 12, '0') || repeat('0', 20))::uuid
$$;

-- All ids of a lease, 16 bytes each.
create or replace function penstock.ids_in(p_firsts bytea, p_counts bytea) returns bytea
language sql immutable strict parallel safe
as $$
    select string_agg(
        uuid_send(penstock.id_after(encode(substr(p_firsts, 16 * i + 1, 16), 'hex')::uuid, o)),
        ''::bytea order by i, o
    )
      from generate_series(0, length(p_firsts) / 16 - 1) as i,
           generate_series(0, (get_byte(p_counts, 2 * i) << 8) + get_byte(p_counts, 2 * i + 1) - 1) as o
$$;

-- The lane of staged parcels: the smallest bigint, which the hash of a real lane is once in 2^64.
create or replace function penstock.lane_staged() returns bigint
language sql immutable parallel safe
as $$
    select -9223372036854775808
$$;

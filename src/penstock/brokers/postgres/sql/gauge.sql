-- Take this minute, unless somebody was quicker since `before` was read: whoever comes second waits
-- for the first one's commit, and then finds another value.
insert into penstock.meta as m (name, value) values ('gauged', %(value)s)
    on conflict (name) do update
   set value = excluded.value
 where m.value = %(before)s;

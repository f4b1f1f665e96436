-- Take this minute, unless somebody was quicker since `before` was read.
insert into penstock_meta (name, value) values ('gauged', :value)
    on conflict (name) do update
   set value = excluded.value
 where value = :before;

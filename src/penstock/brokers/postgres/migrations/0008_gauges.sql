-- Every worker may say which minute was gauged last.
alter policy meta_set on penstock.meta
    with check (name in ('pruned_before', 'gauged'));
alter policy meta_change on penstock.meta
    using (name in ('pruned_before', 'gauged'))
    with check (name in ('pruned_before', 'gauged'));

-- Take a rule back.
delete from penstock_rule
 where kind = :kind
   and queue = :queue
   and task = :task
   and version = :version
   and tag = :tag
   and tag_value = :tag_value
   and key = :key
   and per_key = :per_key
   and (until is null or until > :now);

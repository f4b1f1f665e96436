-- Serves set_rule and clear_rule: whether this login may block and unblock.
select penstock.may_block() as allowed;

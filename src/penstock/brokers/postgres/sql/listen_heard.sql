-- Serves set_rule: who heard of the change.
listen penstock_heard;

-- Serves set_rule.
unlisten penstock_heard;

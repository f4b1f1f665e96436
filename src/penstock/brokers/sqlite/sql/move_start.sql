-- Serves claim: when it was, in the time of this boot.
update penstock_start set at = ?, boot = ? where id = ?;

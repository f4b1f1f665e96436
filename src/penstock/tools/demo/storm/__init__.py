"""`penstock demo --storm`: kill and freeze processes under load, then check the history."""

"""`penstock demo`: see it work in half a minute."""

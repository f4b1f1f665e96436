"""`penstock demo --spark`: the data pipeline in a minute or two."""

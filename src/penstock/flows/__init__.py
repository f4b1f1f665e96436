"""Jobs joined by needs: flows, their state, outputs and signals."""

"""Other searchers, after systems of the literature, for comparison with the exact one."""

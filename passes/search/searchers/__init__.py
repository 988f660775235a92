"""Other ways to search a graph of choices, after systems of the literature, to compare with the exact one."""

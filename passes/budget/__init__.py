"""Which values of the forward are kept for backward and which are computed again, within a budget."""

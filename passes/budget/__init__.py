"""Memory budgets: choice of the forward values to keep for backward, and of those to recompute."""

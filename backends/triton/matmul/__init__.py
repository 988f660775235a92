"""Matrix products as Triton modules."""

"""Generation of attention as Triton modules."""

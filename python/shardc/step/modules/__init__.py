"""Which modules of a model options mean."""

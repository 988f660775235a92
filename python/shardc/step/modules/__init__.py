"""Resolution of options that name modules of a model."""

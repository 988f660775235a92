"""What a pass is, which passes there are, and pass pipelines as data."""

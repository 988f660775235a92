"""The base class of passes, their registry, pass pipelines as data, and the contracts of levels."""

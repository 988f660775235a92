"""The step cut into stages."""

"""Splitting of the step into stages."""

"""Recomputation: backward runs forward ops again, so that their results need not be kept."""

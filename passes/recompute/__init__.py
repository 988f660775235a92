"""Recomputation: forward ops that a backward makes again, so that what they make need not be kept."""

"""Vectorized arithmetic and math functions."""

"""Triton modules of matrix products."""

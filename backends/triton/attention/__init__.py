"""Attention as Triton modules."""

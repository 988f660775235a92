"""Ahead-of-time compilation of Triton modules."""

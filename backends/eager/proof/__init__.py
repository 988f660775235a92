"""Comparison of two programs by execution: inputs, tolerances and results."""

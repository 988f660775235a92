"""Grouping of ops into kernels."""

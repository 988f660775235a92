"""Calls of compiled kernels."""

"""Backends: the oracle, programs in PyTorch, and code generators of kernels."""

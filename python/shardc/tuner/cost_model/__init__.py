"""Ranks points of kernels by what trials have shown: features, and gradient-boosted trees over them."""

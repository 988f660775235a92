"""Lowerings of ATen calls to a kernel's body, one file an op family."""

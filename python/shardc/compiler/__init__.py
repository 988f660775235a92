"""Compilation of a program into kernels and ATen calls."""

"""From a program to its kernels and calls."""

"""Calls that become kernels of their own."""

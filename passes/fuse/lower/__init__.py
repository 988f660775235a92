"""Lowerings of ATen calls to kernel bodies, one file per op family."""

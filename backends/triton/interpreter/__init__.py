"""Runs Triton modules on the CPU, in Triton's interpreter."""

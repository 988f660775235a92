"""Configurations of kernels on CPUs: what ``backends/cpu`` leaves open, a file for each structure."""

"""Configurations of kernels on GPUs: what ``backends/triton`` leaves open, a file for each structure."""

"""Configurations of kernels on GPUs that tuning may try: one file per structure."""

"""Configuration spaces of CPU kernels, a file for each structure."""

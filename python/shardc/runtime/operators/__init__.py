"""The operators that shardc adds to PyTorch."""

"""Loading and calling of compiled kernels."""

"""Bodies of kernels: written once, and copied for kernels of the same structure."""

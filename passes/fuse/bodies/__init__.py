"""The body of a kernel: written once, copied for kernels of the same structure."""

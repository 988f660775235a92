"""``kern-fuse``: reading of a program, grouping of its ops, and their lowering to kernels."""

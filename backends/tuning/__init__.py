"""What the targets share of trying configurations of kernels: points, spaces, tasks, building and running."""

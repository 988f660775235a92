"""``kern-extern``: matmuls that stay calls of ATen or another library."""

"""Generation of matmuls with register tiles."""

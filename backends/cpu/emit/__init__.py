"""Generation of loops over memory from a kernel's body."""

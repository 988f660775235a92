"""Generation of the text of a Triton module from a kernel's body."""

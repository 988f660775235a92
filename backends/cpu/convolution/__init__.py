"""Generation of convolutions with register tiles."""

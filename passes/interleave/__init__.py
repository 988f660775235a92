"""``dist-interleave``: storage layouts of fused weights and sequences, so that a split divides each part."""

"""The integer program: its reductions, its rounding, and the weights of what overlaps."""

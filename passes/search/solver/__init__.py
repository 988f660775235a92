"""Integer program of the search: reductions, rounding, and weights of overlapped collectives."""

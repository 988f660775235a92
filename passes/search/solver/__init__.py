"""Solver of the search: cost function networks, prices of memory, weights of overlapped collectives."""

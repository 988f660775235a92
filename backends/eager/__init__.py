"""The oracle: an interpreter of any level for simulated ranks, and comparison of programs."""

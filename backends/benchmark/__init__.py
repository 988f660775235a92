"""Benchmarks of alternatives during a compile, and the record of their results."""

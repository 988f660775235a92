"""Proofs that a schedule, its transfers and its collectives are sound."""

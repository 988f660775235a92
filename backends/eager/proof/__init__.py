"""Comparison of two programs: tolerances, outcomes, and which op differs."""

"""Generators of pipeline schedules, one file per family."""

"""Arithmetic on vector lanes."""

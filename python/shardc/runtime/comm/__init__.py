"""Ranks, process groups and collectives."""

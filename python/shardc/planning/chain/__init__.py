"""Stages of a chain of layers whose times were measured: uneven stages, each with devices of its own."""

"""Errors and remarks of the passes."""

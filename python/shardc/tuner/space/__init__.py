"""Spaces of configurations: those of a task, with the user's constraints."""

"""Passes that normalize a traced program before a plan is applied."""

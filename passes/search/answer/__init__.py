"""Explanation of the plan that a search found."""

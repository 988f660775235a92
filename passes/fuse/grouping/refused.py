"""Refusal to join two groups of nodes."""


class Refused(Exception):
    """Reason why two groups are not joined, in words."""

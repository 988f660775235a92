"""What the arguments and results of a step are (``dist.role``)."""

STATE_ROLES = ("param", "opt_state", "buffer")
"""Roles of arguments that a step updates: the result of the same role and name is the new value."""

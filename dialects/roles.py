"""What the arguments and results of a step are (``dist.role``)."""

STATE_ROLES = ("param", "opt_state", "buffer")
"""Those of arguments that a step gives new values: the result of the same role and name."""

"""Programs read as work, and the time of their steps."""

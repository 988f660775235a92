"""``schedule="auto"``: what stages cost on the step's cluster, and the schedule that is chosen by it."""

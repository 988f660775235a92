"""Lower bounds of what plans need, from a step with few layers and without a compile of any plan."""

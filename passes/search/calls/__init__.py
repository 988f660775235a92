"""What the search reads from a step: its calls of weights, cuts of its forward, and repeated calls."""

"""Built points are checked against the reference and timed in turns, in a process of their own."""

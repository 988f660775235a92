"""Work of programs, read from their modules, and the estimated time of their steps."""

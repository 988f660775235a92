"""Which points of a space to try next: a file for each strategy, ``registry.py`` has their names."""

"""A block of the program as fusion sees it."""

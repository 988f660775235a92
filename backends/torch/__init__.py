"""Python program of a rank, with its memory plan."""

"""What the command line calls."""

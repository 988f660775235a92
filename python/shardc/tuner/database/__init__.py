"""Every trial that was ever made, on disk."""

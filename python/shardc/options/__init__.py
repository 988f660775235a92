"""Options that a user sets."""

"""Tuning database: all trials, on disk."""

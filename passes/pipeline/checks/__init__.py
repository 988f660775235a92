"""Verification of schedules, their transfers and their collectives."""

"""Planner: the cost of plans, and which of them fit, computed without weights or devices."""

"""Pipelines: splitting the step into stages, and schedules of their actions."""

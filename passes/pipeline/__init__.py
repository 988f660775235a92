"""Pipelines: the step cut into stages, and schedules that order their actions."""

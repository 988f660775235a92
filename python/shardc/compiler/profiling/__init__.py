"""Measured times of a program's calls on this machine, kept and summed to the time of a step."""

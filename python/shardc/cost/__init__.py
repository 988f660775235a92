"""Cost models: time and memory of programs."""

"""Time of a step: its work, a device's streams, pipelines, and clusters."""

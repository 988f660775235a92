"""The time of a step: what it consists of, a device's streams, pipelines, and clusters."""

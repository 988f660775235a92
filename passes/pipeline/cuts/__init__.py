"""Where a pipeline is cut into stages: balanced, within a limit of memory, at towers."""

"""What shards a captured step: its mesh, its plan, and the passes in order."""

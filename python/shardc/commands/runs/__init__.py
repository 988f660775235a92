"""More of ``shardc run``: timelines, and scripts that go on with fewer processes."""

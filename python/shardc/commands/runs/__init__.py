"""Parts of ``shardc run``: timelines, and scripts that continue with fewer processes."""

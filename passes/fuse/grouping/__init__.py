"""Which ops share a kernel."""

"""Parts of tuning that all targets share: points, spaces, tasks, building and running."""

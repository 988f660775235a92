"""``dist-combine``: collectives combined in buckets."""

"""``dist-propagate``: derives the sharding of every value from a few annotations."""

"""Times of collectives by algorithm, from the links of a group. ``cost/collective.py`` has their bytes."""

"""``torch-split-reductions``: forms of calls whose working dim is split over devices."""

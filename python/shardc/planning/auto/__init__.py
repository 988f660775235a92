"""Outer search of ``plan="auto"``: mesh, stages, schedule, micro-batches and recomputation.

For each choice an inner search, the pass ``dist-search``, finds the shardings of all calls.
"""

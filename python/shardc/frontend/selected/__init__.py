"""Fixes sizes that depend on values: ``x[mask]`` keeps all rows of ``x`` and records the selected ones.

A trace represents such a size by a symbol. Here each such dim becomes a dim of a fixed size, at least as
long, and a ``Selection`` says which places hold an element; the other places hold any value. Elementwise ops
ignore this; sums, products and writes exclude the other places. Elements stay in place, so selecting rows
moves no data and is sharded like the rows (``docs/decisions/0012``).
"""

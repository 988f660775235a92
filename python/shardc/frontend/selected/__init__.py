"""Sizes that depend on values, made fixed: ``x[mask]`` keeps all rows of ``x`` and remembers which ones are
meant.

A trace names such a size by a symbol. Here each dim of such a size becomes a dim of a fixed size, at least as
long, of which a ``Selection`` says what elements it has; all other places hold anything. What goes
elementwise does not notice; sums, products and writes leave the others out. Elements stay where they were, so
that selecting rows moves nothing and is cut over the mesh as the rows are (``docs/decisions/0012``).
"""

"""Traces equal layers once; forward and backward of the other layers are copies of the same nodes.

Two modules are equal if class, attributes and shapes of tensors are equal; two calls are equal if modules and
arguments are. The first two calls of a kind are traced and compared. Later calls copy the nodes of the first,
and so do their backwards. If copies may be wrong, the whole step is traced again, layer by layer
(``Unfoldable``).
"""

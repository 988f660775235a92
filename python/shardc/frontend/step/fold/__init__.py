"""Layers that are alike are traced once: forward and backward of the others are copies of the same nodes.

Two modules are alike where class, attributes and the shapes of their tensors are equal, and two calls where
modules and arguments are. The first two calls of a kind are traced and compared. Later calls copy the nodes
of the first, and so do their backwards. Where copies may be wrong, the whole step is traced again, layer by
layer (``Unfoldable``).
"""

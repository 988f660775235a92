"""Analysis of a kernel's ``linalg`` body, independent of the target. All backends generate kernels from it.

``extract`` turns a ``kern.kernel`` into a function. ``structured`` reads a body that is one op of ``kern``;
``read_graph`` reads all others as a ``graph`` of tensors, from which elements are requested. ``roots`` finds
the values that need loops, ``axes`` identifies equal loops of different roots, and ``contraction`` recognises
matmuls.
"""

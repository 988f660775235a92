"""What a kernel's body says, before any target is chosen: read into tensors that are asked for elements, and its loops.

Of a ``kern.kernel``: ``extract`` makes a function of it, ``graph`` reads that, ``roots`` finds what needs loops,
``axes`` joins the loops of different roots that are one and the same, ``contraction`` knows matmuls. Every backend
writes its kernels from this.
"""

"""What a kernel's ``linalg`` body says, before any target is chosen. Every backend writes its kernels from
this.

``extract`` makes a function of a ``kern.kernel``. A body that is one op of ``kern`` is read by
``structured``, any other by ``read_graph``, as tensors that are asked for elements (``graph``). ``roots``
finds what needs loops, ``axes`` joins the loops of different roots that are one and the same, ``contraction``
knows matmuls.
"""

"""Machine code for the host CPU: a ``kern.kernel`` body becomes loops, the loops become a shared object.

``backends/body`` reads it; ``emit`` (with ``attention`` and ``matmul``) writes the loops; ``lanes`` puts them
into vector lanes, with arithmetic for functions; ``object_code`` lowers and links. ``compile`` drives them.
"""

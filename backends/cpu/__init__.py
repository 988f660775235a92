"""Compiler for the host CPU: a ``kern.kernel`` body becomes loops, and the loops become a shared object.

``backends/body`` reads the body. ``emit`` (with ``attention`` and ``matmul``) generates loops. ``lanes``
vectorizes them, and expands math functions. ``object_code`` lowers and links. ``compile`` runs all of these.
"""

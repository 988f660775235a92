"""Triton kernels for GPUs: a ``kern.kernel`` body becomes one readable Python module.

``body/`` (reading) -> ``nests`` (which ops one function computes) -> ``config`` (tiles) -> ``function`` (its
text, with ``element``, ``scalars``, ``reduce``, ``code``) -> ``module``; ``emit`` drives them. ``flat`` are
kernels of any number of elements. ``compile`` makes binaries for a target without a GPU; ``interpret`` runs
modules in Triton's interpreter, for values.
"""

"""Triton kernels for GPUs: a ``kern.kernel`` body becomes one readable Python module.

``body/`` (reading) -> ``nests`` (ops of one function) -> ``config`` (tiles) -> ``function`` (text) ->
``module``; ``emit`` drives them. ``aot`` compiles without a GPU, ``interpreter`` runs modules for values.
"""

"""Compiler to Triton for GPUs: a ``kern.kernel`` body becomes one readable Python module.

The steps are ``body/`` (reading), ``nests`` (ops of one function), ``config`` (tiles), ``function`` (text)
and ``module``; ``emit`` runs them. ``aot`` compiles without a GPU, and ``interpreter`` runs modules on
values.
"""

"""Compiler passes, one package per subject; :mod:`shardc.passes.manager` has the base class and registry."""

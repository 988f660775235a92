"""Lowering of loops to machine code, in a separate process."""

"""Lifetimes of values in an emitted program, aliasing, and peak memory."""

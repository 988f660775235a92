"""Precision of reductions over devices and micro-batches."""

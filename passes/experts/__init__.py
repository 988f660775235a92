"""Mixtures of experts: products recognised by their dataflow, and rows brought to their experts."""

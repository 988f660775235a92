"""Mixtures of experts: recognition of expert products by dataflow, and dispatch of rows to experts."""

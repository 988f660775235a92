"""Fusion of linear layers with their cross entropy to ``shardc.linear_cross_entropy`` and its backward, which
store no logits.

``pattern`` defines a language of patterns, and ``forms`` has the patterns of such losses. ``find`` searches a
block of a step, or of a graph of ``torch.compile``, and reports why other losses store logits. ``write``
replaces the calls by the ops, and ``kernel`` lowers the ops to kernels.
"""

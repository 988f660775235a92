"""Linear layers with a cross entropy behind them, raised to ``shardc.linear_cross_entropy`` and its backward,
which hold no logits.

``forms`` is the table of what they look like, in the language of ``pattern``; ``find`` looks for them in a
block of a step, or of a graph of ``torch.compile``, and says why logits of others are made; ``write`` puts
the ops in their places, and ``kernel`` makes kernels of the ops.
"""

"""Linear layers with a cross entropy behind them as kernels of their own, forward and backward, which hold no logits.

What is looked for is one class a row, and the sum over all classes (label smoothing), of the log_softmax of
``rows weight^T + bias``, and the two products with its gradient. ``find`` has the forward calls, ``softmax`` the two
forms of a log_softmax (one call, or its parts, where devices have a part of the classes each), ``gradient`` what is
behind it, ``write`` the kernels.
"""

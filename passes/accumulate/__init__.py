"""Steps that run each micro-batch as a program of its own: their losses and gradients are averaged."""

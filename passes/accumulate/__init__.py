"""Gradient accumulation: each micro-batch runs as a separate program; losses and gradients are averaged."""

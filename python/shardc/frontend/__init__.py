"""Capture of training steps and of graphs of ``torch.compile``, and their import to level 1."""

"""The ``torch.compile`` backend."""

"""Functions of PyTorch and settings of libraries that are overridden while a step is traced."""

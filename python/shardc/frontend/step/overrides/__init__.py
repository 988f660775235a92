"""What is overridden while a step is traced: functions of PyTorch, settings of libraries."""

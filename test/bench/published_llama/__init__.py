"""Llama 3.1 as torchtitan trained it at the end of 2024, in plain PyTorch, and its published figures."""

"""Triton modules run on the CPU by Triton's interpreter."""

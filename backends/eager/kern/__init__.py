"""Execution of ``kern`` ops on real tensors."""

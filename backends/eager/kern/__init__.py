"""The ops of ``kern`` on real tensors."""

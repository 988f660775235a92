"""Cost model that ranks points of kernels: features, and gradient-boosted trees trained on trials."""

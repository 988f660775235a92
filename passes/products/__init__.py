"""``dist-share-products``: splits products that every device would otherwise compute in full."""

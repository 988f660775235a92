"""Cross entropies of linear layers as Triton modules."""

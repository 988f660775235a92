"""``dist-pad`` and passes before it: padding of dims that do not divide into equal blocks."""

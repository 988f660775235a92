"""Rules of convolutions and pooling, and the halos that ranks exchange where pixels are split."""

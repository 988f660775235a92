"""Rules of convolutions and pooling, and the halos that ranks trade where pixels are cut."""

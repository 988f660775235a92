"""What plans cost, and which fit: answered on a laptop, without weights and without devices."""

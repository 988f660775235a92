"""Front end for a whole training step."""

"""Import of a traced FX graph as a level-1 module."""

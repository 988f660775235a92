"""From a traced FX graph to a level-1 module."""

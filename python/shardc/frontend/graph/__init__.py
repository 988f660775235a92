"""Front end for the graphs of AOTAutograd."""

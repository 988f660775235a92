"""Front end for AOTAutograd's graphs."""

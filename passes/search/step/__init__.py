"""The step that a search decides: its program, the program on a mesh, and the graph of choices."""

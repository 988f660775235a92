"""Pages that are written from the compiler's own definitions."""

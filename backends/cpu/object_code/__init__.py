"""From loops to machine code, in a process of its own."""

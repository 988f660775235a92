"""Plans: presets, patterns of names, plan files, and their application to a program."""

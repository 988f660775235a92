"""What a program's calls take on this machine: measured, kept, and added up to the time of a step."""

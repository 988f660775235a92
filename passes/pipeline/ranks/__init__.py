"""The program of each rank of a pipeline."""

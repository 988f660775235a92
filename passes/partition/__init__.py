"""Reshards between shardings, and the local program of each rank."""

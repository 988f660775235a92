"""What shardc keeps on disk."""

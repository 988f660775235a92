"""The cache of compiled code on disk, and temporary folders."""

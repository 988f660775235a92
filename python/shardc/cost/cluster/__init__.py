"""Clusters as data: devices, links by level, hosts; what a mesh axis is on them."""

"""Clusters as data: devices, levels of links and hosts, and the placement of meshes on them."""

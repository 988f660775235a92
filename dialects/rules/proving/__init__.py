"""Proof of sharding rules by execution."""

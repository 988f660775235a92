"""Sharding rules: one module per family of operators, each rule proved by execution."""

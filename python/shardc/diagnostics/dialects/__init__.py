"""Errors of the dialects: levels, sharding rules, shardings."""

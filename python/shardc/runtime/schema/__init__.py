"""Schemas of JSON files, and the checks that they consist of."""

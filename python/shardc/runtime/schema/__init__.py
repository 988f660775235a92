"""Schemas of JSON files, and what checks them."""

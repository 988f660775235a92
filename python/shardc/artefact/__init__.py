"""Artefacts: folders that run a compiled step without shardc."""

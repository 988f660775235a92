"""Artefacts: folders that run without shardc."""

"""Costs of deep models from shallow ones: equal layers are compiled two and three times, and counted."""

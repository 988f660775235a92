"""Costs of deep models, extrapolated from programs with two and with three of the equal layers."""

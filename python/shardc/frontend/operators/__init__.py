"""Operators that are traced as other operators."""

"""Points become programs, in processes of their own."""

from shardc.tuner.builder.built import Built

__all__ = ["Built"]

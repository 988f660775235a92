"""Functions of the tenth list."""

from . import fields, sets, signals

FUNCTIONS = {**signals.FUNCTIONS, **sets.FUNCTIONS, **fields.FUNCTIONS}

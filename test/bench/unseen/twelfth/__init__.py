"""Functions of the twelfth list."""

from . import losses, pictures, sequences, states

FUNCTIONS = {**losses.FUNCTIONS, **sequences.FUNCTIONS, **pictures.FUNCTIONS, **states.FUNCTIONS}

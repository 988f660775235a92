"""Functions of the thirteenth list."""

from . import images, layers, records, worlds

FUNCTIONS = {**images.FUNCTIONS, **layers.FUNCTIONS, **records.FUNCTIONS, **worlds.FUNCTIONS}

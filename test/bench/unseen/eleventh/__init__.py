"""Functions of the eleventh list."""

from . import layouts, walks, wholes

FUNCTIONS = {**layouts.FUNCTIONS, **walks.FUNCTIONS, **wholes.FUNCTIONS}

"""The ``kern`` dialect. Importing it registers every op and attribute.

Builders are functions of the op's module: ``from shardc.dialects.kern.kernel import kernel``.
"""

from importlib import import_module
from pkgutil import iter_modules

from shardc.dialects.kern.dialect import Kern as Kern

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

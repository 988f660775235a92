"""``#kern.config``: tile sizes and other parameters of a kernel."""

from collections.abc import Mapping

from torch_mlir import ir

from shardc.dialects.dist.build import i64
from shardc.dialects.dist.verifier import Illegal
from shardc.dialects.kern.dialect import Kern


class ConfigAttr(Kern.Attribute, name="config"):
    """Named integers, at least 1, that a backend reads. Missing ones have the backend's defaults.

    ``#kern.config<{rows = 4 : i64, vector = 16 : i64}>``
    """

    values: ir.DictAttr


def config(values: Mapping[str, int], context: ir.Context) -> ir.Attribute:
    """Return the attribute that holds ``values``."""
    entries = {name: i64(value, context) for name, value in sorted(values.items())}
    with context:
        return ConfigAttr.get(ir.DictAttr.get(entries, context))


def read_config(attribute: ir.Attribute) -> dict[str, int]:
    """Return the named integers of a ``#kern.config``. Raises Illegal for any other attribute or entry."""
    if not isinstance(attribute, ConfigAttr):
        raise Illegal(f"config must be a #kern.config, not {attribute}")
    entries = ir.DictAttr(attribute.params[0])
    for entry in entries:
        if not isinstance(entry.attr, ir.IntegerAttr) or entry.attr.value < 1:
            raise Illegal(f"config: {entry.name} must be an integer of at least 1, not {entry.attr}")
    return {entry.name: entry.attr.value for entry in entries}

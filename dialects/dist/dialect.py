"""The ``dist`` dialect: meshes, shardings, reshards, collectives, time loops and manual regions."""

from torch_mlir.dialects import ext
from torch_mlir.dialects._ods_common import _cext

# Without this prefix the bindings would search again, 0.1 ms an op, for the module of each dialect that was
# never imported.
_cext.globals.append_dialect_search_prefix("shardc.dialects")


class Dist(ext.Dialect, name="dist"):
    """Sharding of tensors over the axes of a mesh, and the communication that follows from it."""

"""The ``dist`` dialect: meshes, shardings, reshards, collectives, time loops and manual regions."""

from torch_mlir.dialects import ext
from torch_mlir.dialects._ods_common import _cext

# Whenever Python meets an op of a dialect whose module was never imported, the bindings look for that module
# again: 0.1 ms an op. They find it here.
_cext.globals.append_dialect_search_prefix("shardc.dialects")


class Dist(ext.Dialect, name="dist"):
    """Sharding of tensors over the axes of a mesh, and the communication that follows from it."""

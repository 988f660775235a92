"""The ``dist`` dialect: meshes, shardings, reshards, collectives, time loops and manual regions."""

from torch_mlir.dialects import ext


class Dist(ext.Dialect, name="dist"):
    """Sharding of tensors over the axes of a mesh, and the communication that follows from it."""

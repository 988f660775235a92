"""The MLIR dialects ``dist``, ``kern`` and ``pipe``, access to the torch dialect, and sharding rules."""

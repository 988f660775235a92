"""The collectives of the ``dist`` dialect, one file an op."""

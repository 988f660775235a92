"""The ops of the ``dist`` dialect that have regions."""

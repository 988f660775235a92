"""Library calls: ``kern-extern`` for matmuls, ``torch-channels-last`` for layouts of convolutions."""

"""Plans of other libraries: torch's ``parallelize_module``, and plans shipped by ``transformers`` models."""

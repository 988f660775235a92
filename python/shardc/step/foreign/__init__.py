"""Plans of other libraries: torch's ``parallelize_module``, and those that ``transformers`` models ship."""

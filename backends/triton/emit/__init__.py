"""From a kernel's body to the text of a Triton module."""

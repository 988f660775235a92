"""The form of a block that fusion works on."""

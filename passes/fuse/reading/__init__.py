"""Form of a block that fusion works on."""

"""``compile_step`` and the step that it returns."""

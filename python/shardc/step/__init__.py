"""Entry points ``compile_step`` and ``compile_forward``, and the compiled programs that they return."""

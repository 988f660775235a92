"""Options of ``shardc opt``, named like mlir-opt's flags."""

from dataclasses import dataclass

from shardc.options.field import Group, option


@dataclass(frozen=True)
class OptOptions(Group):
    """How passes run and what is printed or checked."""

    verify_each: bool = option(True, "Verify the IR after each pass.")
    print_ir_after_all: bool = option(False, "Print the IR after each pass on standard error.")
    split_input_file: bool = option(False, "Process the parts between // ----- lines separately.")
    verify_diagnostics: bool = option(
        False, "Require that errors match the // expected-error@+1 {{text}} comments."
    )
    mlir_print_debuginfo: bool = option(False, "Print locations.")
    allow_unregistered_dialect: bool = option(False, "Accept ops of unregistered dialects.")

"""How ``shardc opt`` runs; the names are those of mlir-opt's flags."""

from dataclasses import dataclass

from shardc.options.field import Group, option


@dataclass(frozen=True)
class OptOptions(Group):
    """What passes are run on, and what is said of them."""

    verify_each: bool = option(True, "Verify the IR after each pass.")
    print_ir_after_all: bool = option(False, "Print the IR after each pass on standard error.")
    split_input_file: bool = option(False, "Treat the parts between // ----- lines one by one.")
    verify_diagnostics: bool = option(
        False, "Errors must be those of the // expected-error@+1 {{text}} comments."
    )
    mlir_print_debuginfo: bool = option(False, "Print locations.")
    allow_unregistered_dialect: bool = option(False, "Accept ops of dialects that nobody registered.")

"""``shardc opt``: runs passes on MLIR text and prints the result, as MLIR's own opt tools do."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from torch_mlir import ir

from shardc.commands import expected_errors
from shardc.commands.wrong_calls import wrong_call
from shardc.diagnostics.base import ShardcError
from shardc.dialects.context import new_context
from shardc.options.opt import OptOptions
from shardc.passes.manager import pass_pipelines as pipelines
from shardc.passes.manager.base import Pass
from shardc.passes.manager.mlir_errors import UNNAMED_SOURCE, Source, parse_module

SPLIT_MARKER = "// -----"


def run_pipeline(source_text: str, source_name: str, pipeline: str, options: OptOptions) -> str:
    """Run ``pipeline`` on the module ``source_text`` and return the resulting text.

    With ``split_input_file`` each part of the text is processed separately. Under ``verify_diagnostics`` a
    part with errors prints nothing.

    Raises MalformedMlir, UnknownPass and other errors of the pipeline's text, PassFailed, PassBrokeModule,
    errors of shardc's passes, and DiagnosticMismatch under ``verify_diagnostics``.
    """
    steps = pipelines.build(pipeline)
    texts = split_input(source_text) if options.split_input_file else [source_text]
    outputs: list[str] = []
    found: list[expected_errors.Diagnostic] = []
    for text in texts:
        try:
            outputs.append(_process(Source(source_name, text), steps, options))
        except ShardcError as error:
            if not options.verify_diagnostics:
                raise
            found += expected_errors.diagnostics_of(error, source_name)
    if options.verify_diagnostics:
        expected_errors.check(expected_errors.expectations(source_text), found, source_name)
    return f"{SPLIT_MARKER}\n".join(outputs)


def split_input(text: str) -> list[str]:
    """Split at ``// -----`` lines. Empty lines before each part keep the line numbers of the file."""
    parts: list[list[str]] = [[]]
    for number, line in enumerate(text.split("\n")):
        if line.startswith(SPLIT_MARKER):
            parts.append([""] * (number + 1))
        else:
            parts[-1].append(line)
    return ["\n".join(part) for part in parts]


def _process(source: Source, steps: Sequence[Pass], options: OptOptions) -> str:
    context = new_context()
    # With threads, verifiers written in Python deadlock on the interpreter's lock (measured).
    context.enable_multithreading(False)
    context.allow_unregistered_dialects = options.allow_unregistered_dialect
    with context:
        module = parse_module(source, context)
        after_pass, verify = _dump if options.print_ir_after_all else None, options.verify_each
        try:
            pipelines.run(module, steps, verify_each=verify, after_pass=after_pass, source=source)
        except ShardcError as error:
            # A pass knows only the location in the IR, where MLIR writes "-" for the file.
            if error.where and error.where.startswith(f"{UNNAMED_SOURCE}:"):
                error.where = source.name + error.where.removeprefix(UNNAMED_SOURCE)
            raise
        except Exception as error:
            if wrong := wrong_call(parse_module(source, context), source):
                raise wrong from error
            raise
        return module.operation.get_asm(enable_debug_info=options.mlir_print_debuginfo).rstrip() + "\n"


def _dump(pass_title: str, module: ir.Module) -> None:
    print(f"// -----// IR Dump After {pass_title} //----- //\n{module}\n", file=sys.stderr)

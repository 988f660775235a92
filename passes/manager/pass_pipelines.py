"""Pass pipelines as data; building a list of passes from text, and running it on a module.

A name in a pipeline is one of ``PIPELINES``, a pass in our registry, or else is passed to MLIR as text.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch_mlir.dialects.torch  # noqa: F401 (Torch-MLIR's passes are known from then on)
from torch_mlir import ir
from torch_mlir.passmanager import PassManager

from shardc.diagnostics.cli import (
    BadMlirPass,
    BadPipeline,
    NestedPass,
    PassBrokeModule,
    PassFailed,
    UnknownPass,
)
from shardc.passes.manager.base import Pass
from shardc.passes.manager.mlir_errors import UNKNOWN_SOURCE, Source
from shardc.passes.manager.pass_pipeline_text import Element, parse_options, parse_pipeline
from shardc.passes.manager.reading import Reading, ReadingPass
from shardc.passes.manager.registry import PASSES, pass_class
from shardc.runtime.report import progress

PIPELINES: dict[str, str] = {
    "shard": "torch-lift-bmm,torch-lift-convolutions,torch-lift-experts,torch-lift-repeats,"
    "torch-lift-reshapes,torch-share{creations=false},dist-constrain,dist-dispatch,dist-share-products,"
    "split,dist-propagate,dist-insert-reshards,verify-level{level=2}",
    "split": "torch-lift-pads,torch-even-windows,torch-round-pads,dist-pad,dist-interleave,"
    "torch-split-reductions",
    "partition": "dist-partition,dist-combine,verify-level{level=3}",
    "rank": "shard,partition",
    "kernel": "rank,kern-fuse",
}
"""Named pass pipelines. The text names passes and other pass pipelines."""

FAMILIAR_MLIR_PASSES = (
    "canonicalize",
    "cse",
    "inline",
    "loop-invariant-code-motion",
    "sccp",
    "strip-debuginfo",
    "symbol-dce",
)
"""MLIR passes for suggestions and ``--list-passes``; a pipeline may name any registered MLIR pass."""

_UNREGISTERED = re.compile(r"'([^']*)' does not refer to a registered pass")


@dataclass(frozen=True)
class MlirPass(Pass):
    """An element of a pass pipeline that MLIR runs, such as ``func.func(canonicalize)``."""

    name: ClassVar[str] = "mlir"
    text: str = ""

    def run(self, module: ir.Module) -> None:
        self.manager(module.context).run(module.operation)

    def manager(self, context: ir.Context) -> PassManager:
        """Return MLIR's pass manager for the text. Raises ValueError with MLIR's message."""
        manager = PassManager("builtin.module", context=context)
        manager.add(self.text)
        return manager


def build(pipeline: str) -> list[Pass]:
    """Return the passes of ``pipeline``, with their options set. Raises BadPipeline, UnknownPass,
    BadPassOption.
    """
    return [step for element in parse_pipeline(pipeline) for step in _expand(element, ())]


def title(step: Pass) -> str:
    """Return the title of a pass in messages: its name, or the text for MLIR."""
    return step.text if isinstance(step, MlirPass) else step.name


def run(
    module: ir.Module,
    steps: Sequence[Pass],
    *,
    verify_each: bool = True,
    after_pass: Callable[[str, ir.Module], None] | None = None,
    source: Source = UNKNOWN_SOURCE,
    reading: Reading | None = None,
) -> Reading:
    """Run the passes in order and call ``after_pass(title, module)`` after each. Return the step afterwards.

    ``reading`` is an earlier reading of ``module``, if only attributes changed since. It is returned if the
    passes, too, changed attributes alone. ``source`` is the text
    that the module was parsed from, for error messages. Raises the errors of passes, PassFailed if an MLIR
    pass fails, and PassBrokeModule if a pass leaves IR that does not verify.
    """
    for number, step in enumerate(steps):
        progress.step(title(step), number + 1, len(steps))
        try:
            reading = reading or Reading(module)
            if not isinstance(step, ReadingPass):
                step.run(module)
                reading = None
            elif step.apply(reading):
                reading = None
        except ir.MLIRError as error:
            raise PassFailed(name=title(step), **source.describe(error)) from error
        except Exception as error:
            error.add_note(f"in the pass {title(step)}")
            raise
        if verify_each and not isinstance(step, MlirPass):  # MLIR's pass manager verifies by itself
            _verify(module, step, source)
        if after_pass:
            after_pass(title(step), module)
    return reading or Reading(module)


def _verify(module: ir.Module, step: Pass, source: Source) -> None:
    try:
        module.operation.verify()
    except ir.MLIRError as error:
        raise PassBrokeModule(name=title(step), **source.describe(error)) from error


def _expand(element: Element, inside: tuple[str, ...]) -> Iterator[Pass]:
    if element.name in PIPELINES and not element.children:
        if element.name in inside:
            raise BadPipeline(problem=f"the pipeline {element.name!r} includes itself", snippet="")
        if element.options:
            raise BadPipeline(problem=f"the pipeline {element.name!r} takes no options", snippet="")
        for part in parse_pipeline(PIPELINES[element.name]):
            yield from _expand(part, (*inside, element.name))
    elif element.name in PASSES and not element.children:
        yield pass_class(element.name).from_options(parse_options(element.options))
    else:
        _refuse_ours_inside(element)
        yield _mlir_pass(element)


def _refuse_ours_inside(element: Element) -> None:
    for child in element.children:
        if child.name in PASSES or child.name in PIPELINES:
            raise NestedPass(name=child.name, anchor=element.name)
        _refuse_ours_inside(child)


def _mlir_pass(element: Element) -> MlirPass:
    step = MlirPass(text=str(element))
    try:
        step.manager(ir.Context())
    except ValueError as error:
        if unregistered := _UNREGISTERED.search(str(error)):
            raise UnknownPass(name=unregistered[1], nearest=_nearest(unregistered[1])) from None
        raise BadMlirPass(text=step.text, problem=" ".join(str(error).split())) from None
    return step


def _nearest(name: str) -> str:
    near = difflib.get_close_matches(name, [*PASSES, *PIPELINES, *FAMILIAR_MLIR_PASSES])
    return f"; did you mean {' or '.join(near)}?" if near else ""


def describe_all() -> str:
    """Return text about all passes, their options, and all named pipelines, for ``--list-passes``."""
    lines = ["Passes:"]
    for name in sorted(PASSES):
        cls = pass_class(name)
        lines.append(f"  {name}")
        lines += [f"      {line.strip()}" for line in (cls.__doc__ or "").strip().splitlines()]
        lines += [f"      option {option.render()}" for option in cls.options()]
    lines += ["", "Pipelines:", *(f"  {name} = {text}" for name, text in sorted(PIPELINES.items())), ""]
    familiar = ", ".join(FAMILIAR_MLIR_PASSES)
    lines.append(f"And every pass of MLIR's and Torch-MLIR's by its own name: {familiar}, ...")
    return "\n".join(lines)

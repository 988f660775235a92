"""Small level-3 modules, written as text."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from torch_mlir import ir

import shardc.runtime.operators.random  # noqa: F401  defines the op that the modules call
from shardc.backends.torch.emit import emit_program
from shardc.dialects.context import new_context

MESH = (
    '"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"], ["micro", '
    '4, "time"]]} : () -> ()'
)
CONSTANTS = """
    %none = torch.constant.none
    %i0 = torch.constant.int 0
    %i1 = torch.constant.int 1
    %false = torch.constant.bool false
    %true = torch.constant.bool true
"""


@pytest.fixture
def context() -> Iterator[ir.Context]:
    with new_context() as context:
        yield context


@pytest.fixture
def emit(context: ir.Context) -> Callable[..., list[str]]:
    """``emit(arguments, results, body)`` gives the lines of the emitted function's body, without indentation
    and the types of results.

    ``arguments`` and ``results`` map ``role:name`` to a type, such as ``[4,4],f32``; ``body`` is MLIR, values
    of arguments named as they are, results returned by name through ``return`` values of ``results``' order.
    """

    def write(
        arguments: dict[str, str], results: dict[str, str], body: str, returned: list[str]
    ) -> list[str]:
        declared = ", ".join(
            f"%{_name(key)}: !torch.vtensor<{type_}> {_attributes(key)}" for key, type_ in arguments.items()
        )
        given = ", ".join(f"!torch.vtensor<{type_}> {_attributes(key)}" for key, type_ in results.items())
        types = ", ".join(f"!torch.vtensor<{type_}>" for type_ in results.values())
        text = (
            f'"builtin.module"() ({{ {MESH}\n func.func @step({declared}) -> ({given}) {{ {CONSTANTS} {body}\n'  # noqa: E501
            f"return {', '.join(returned)} : {types}\n }} }}) : () -> ()"
        )
        lines = emit_program(ir.Module.parse(text)).splitlines()
        return [line.strip().partition("  # ")[0] for line in lines[lines.index("):") + 1 :]]

    return write


def _name(key: str) -> str:
    return key.partition(":")[2]


def _attributes(key: str) -> str:
    role, _, name = key.partition(":")
    return f'{{dist.name = "{name}", dist.role = "{role}"}}'

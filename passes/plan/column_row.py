"""Which dim of which weight tensor parallelism cuts: from the model's own plan, or found in the program."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from shardc.dialects.dist.axis import Axis
from shardc.dialects.dist.sharding import Sharding
from shardc.passes.program import Program
from shardc.passes.propagate.state import PropagationState

_MATMULS = ("aten.mm", "aten.addmm", "aten.bmm", "aten.linear", "aten.matmul")
_PROBE = Axis("tensor", 1, 2)


def column_row_dims(program: Program, model_plan: Mapping[str, str] | None) -> dict[str, int]:
    """Parameter name -> the dim to cut.

    ``model_plan`` maps module patterns to ``colwise`` or ``rowwise`` (``transformers`` ships it as ``tp_plan``). Without
    one, each weight is tried in program order: cut by columns, does a later weight of the same chain get its rows cut by
    propagation? If so it heads a chain and is annotated; a weight already reached by a chain is left to it.
    """
    shapes = {
        name: program.types[v].shape
        for i, v in enumerate(program.arguments)
        for role, name in [program.argument_key(i)]
        if role == "param"
    }
    if model_plan:
        return dict(_from_model(shapes, model_plan))
    return _from_chains(program)


def _from_model(shapes: Mapping[str, tuple[int, ...]], model_plan: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    rules = [(re.compile(r"(?:.*\.)?" + re.escape(p).replace(r"\*", r"[^.]+")), style) for p, style in model_plan.items()]
    for name, shape in shapes.items():
        module, _, leaf = name.rpartition(".")
        for pattern, style in rules:
            if leaf == "weight" and pattern.fullmatch(module) and len(shape) == 2:
                if style.startswith("colwise") or style == "embedding_rowwise":
                    yield name, 0
                elif style.startswith("rowwise"):
                    yield name, 1
                break


def _from_chains(program: Program) -> dict[str, int]:
    state = PropagationState(program)
    weights = _weights(program)
    found: dict[str, int] = {}
    for position, (name, value, dim, _rows) in enumerate(weights):
        if any(state.sharding(value).dims):
            continue
        before = state.snapshot()
        rank = len(program.types[value].shape)
        if program.types[value].shape[dim] % _PROBE.size:
            continue
        dims = tuple((_PROBE,) if d == dim else () for d in range(rank))
        state.set(value, Sharding(dims, (), (False,) * rank))
        state.run([value])
        later = {w[1]: w[3] for w in weights[position + 1 :]}
        if any(state.sharding(v).dims[r] for v, r in later.items() if v != value):
            found[name] = dim
        else:
            state.restore(before)
    return found


def _weights(program: Program) -> list[tuple[str, int, int, int]]:
    """(name, value, column dim, row dim) of every parameter that is the right side of a matmul, in program order.

    Columns are the dim that becomes a result's last dim; rows the one that is summed over.
    """
    origin = {v: (program.argument_key(i)[1], v, False) for i, v in enumerate(program.arguments) if program.argument_key(i)[0] == "param"}
    found: dict[str, tuple[str, int, int, int]] = {}
    for node in program.nodes:
        phase = node.op.attributes["dist.phase"].value if "dist.phase" in node.op.attributes else "forward"
        if phase != "forward":
            break
        if node.spec.target in ("aten.t", "aten.transpose.int") and node.operands[0] in origin:
            name, value, flipped = origin[node.operands[0]]
            origin[node.results[0]] = (name, value, not flipped)
        elif node.spec.target in ("aten._to_copy", "prims.convert_element_type", "aten.clone") and node.operands[0] in origin:
            origin[node.results[0]] = origin[node.operands[0]]
        elif node.spec.target in _MATMULS and node.operands[-1] in origin:
            name, value, flipped = origin[node.operands[-1]]
            if len(program.types[value].shape) == 2:
                found.setdefault(name, (name, value, 0, 1) if flipped else (name, value, 1, 0))
    return list(found.values())

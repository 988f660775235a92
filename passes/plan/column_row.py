"""The dims of weights that tensor parallelism splits, from the model's own plan or from the program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from shardc.dialects.dist.axis import Axis
from shardc.dialects.dist.sharding import Sharding
from shardc.passes.interleave.fused import Fused, find_fused, seen_through
from shardc.passes.manager.attributes import phase_of
from shardc.passes.manager.program import Program
from shardc.passes.plan.named_styles import name_pattern, named_style
from shardc.passes.plan.vocabulary import vocabulary_cuts
from shardc.passes.propagate.blocks import block_size
from shardc.passes.propagate.state import PropagationState

_MATMULS = ("aten.mm", "aten.addmm", "aten.bmm", "aten.linear", "aten.matmul")
_CONVOLUTION = "aten.convolution"
_TRANSPOSES = ("aten.t", "aten.transpose.int")
_COPIES = ("aten._to_copy", "prims.convert_element_type", "aten.clone")


@dataclass(frozen=True)
class Cut:
    """The dim of a weight to split. ``fused``: its parts, if it is several weights in one."""

    dim: int
    fused: Fused | None = None


def column_row_cuts(program: Program, model_plan: Mapping[str, str] | None) -> dict[str, Cut]:
    """Map parameter names to the dims to split.

    ``model_plan`` maps module patterns to styles such as ``colwise`` (``transformers`` ships it as
    ``tp_plan``; :data:`~shardc.passes.plan.named_styles.NAMED_STYLES`). Without a model plan, each weight is
    tried in program order: its columns are split, and propagation runs. If it splits the rows of a later
    weight, and no call between them needs a whole value, the weight heads a chain and is annotated. Weights
    that an earlier chain reaches are skipped. The vocabulary of a language model is split, too
    (:mod:`shardc.passes.plan.vocabulary`).
    """
    if model_plan:
        return dict(_from_model(program, model_plan))
    return _from_chains(program)


def _from_model(program: Program, model_plan: Mapping[str, str]) -> Iterator[tuple[str, Cut]]:
    """Yield the cuts of a model's own plan. Raises UnknownStyle.

    Patterns match modules with a weight, or parameters: [columns, rows] or [experts, columns, rows].
    ``packed`` columns belong to several weights; they stay whole if the program does not slice them
    accordingly.
    """
    rules = [(name_pattern(pattern), named_style(pattern, style)) for pattern, style in model_plan.items()]
    for (role, name), value in zip(program.argument_keys(), program.arguments, strict=True):
        module, _, leaf = name.rpartition(".")
        rank = len(program.types[value].shape)
        for pattern, style in rules if role == "param" else ():
            of_module = leaf == "weight" and rank == 2 and pattern.fullmatch(module)
            if not of_module and not (rank > 1 and pattern.fullmatch(name)):
                continue
            dim = style.dim(rank)
            if dim is not None:
                fused = find_fused(program, value, dim) if style.packed else None
                if fused is not None or not style.packed:
                    yield name, Cut(dim, fused)
            break


def _from_chains(program: Program) -> dict[str, Cut]:
    weights = _weights(program)
    fused = {value: f for _, value, dim, _ in weights if (f := find_fused(program, value, dim)) is not None}
    program = seen_through(program, list(fused.values()))
    state = PropagationState(program)
    found: dict[str, Cut] = {}
    for position, (name, value, dim, _rows) in enumerate(weights):
        if any(state.sharding(value).dims):
            continue
        shape = program.types[value].shape
        probe = Axis("tensor", 1, _least_divisor(shape[dim] // block_size(program, value, dim)))
        if probe.size == 1:
            continue
        before = state.snapshot()
        dims = tuple((probe,) if d == dim else () for d in range(len(shape)))
        state.set(value, Sharding(dims, (), (False,) * len(shape)))
        touched = state.run([value])
        later = {w[1]: w[3] for w in weights[position + 1 :]}
        ends = any(v in later and state.sharding(v).dims[later[v]] for v in touched)
        if ends and not _leaves_chain(program, state, touched, probe):
            found[name] = Cut(dim, fused.get(value))
        else:
            state.restore(before)
    left = [(name, value, dim) for name, value, dim, _ in weights if not any(state.sharding(value).dims)]
    words = vocabulary_cuts(program, left)
    return {**{name: Cut(dim) for name, dim in words.items()}, **found}


def _least_divisor(size: int) -> int:
    """Return the least divisor above 1; 1 for a size below 2."""
    return next((n for n in range(2, size + 1) if size % n == 0), 1)


def _leaves_chain(program: Program, state: PropagationState, touched: list[int], probe: Axis) -> bool:
    """Return whether the split reaches a forward call that needs the dim whole, or reduces it and is no
    matmul.

    Neither occurs between the columns of one weight and the rows of another. If one does, the split has
    reached the residual stream, whose norms would then each need a reduction.
    """
    for number in sorted({n for v in touched for n in program.users[v]}):
        node = program.nodes[number]
        if phase_of(node.op) not in ("", "forward"):
            break
        if node.spec.target in (*_MATMULS, _CONVOLUTION):
            continue
        stopped = node.rule.replicate | node.rule.reduce.keys()
        for dims, operand in zip(node.rule.operands, node.operands, strict=True):
            sharding = state.sharding(operand)
            cut = {f for d, axes in zip(dims, sharding.dims, strict=True) if probe in axes for f in d[:1]}
            if cut & stopped:
                return True
    return False


def _weights(program: Program) -> list[tuple[str, int, int, int]]:
    """Return (name, value, column dim, row dim) of every weight of a matmul or convolution, in program order.

    Columns are the dim that becomes a result's last dim (or channels), and rows the dim that is summed over.
    """
    keys = zip(program.argument_keys(), program.arguments, strict=True)
    origin = {v: (name, v, False) for (role, name), v in keys if role == "param"}
    found: dict[str, tuple[str, int, int, int]] = {}
    for node in program.nodes:
        if phase_of(node.op) not in ("", "forward"):
            break
        target, operands = node.spec.target, node.operands
        if target in _TRANSPOSES and operands[0] in origin:
            name, value, flipped = origin[operands[0]]
            origin[node.results[0]] = (name, value, not flipped)
        elif target in _COPIES and operands[0] in origin:
            origin[node.results[0]] = origin[operands[0]]
        elif target in _MATMULS and operands[-1] in origin:
            name, value, flipped = origin[operands[-1]]
            if len(program.types[value].shape) == 2:
                found.setdefault(name, (name, value, 0, 1) if flipped else (name, value, 1, 0))
        elif target == _CONVOLUTION and operands[1] in origin and node.spec.args[-1] == 1:
            name, value, _ = origin[operands[1]]
            found.setdefault(name, (name, value, 1, 0) if node.spec.args[6] else (name, value, 0, 1))
    return list(found.values())

"""What fusing a program does and why: kernels with their savings, pairs considered, calls that stay."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from torch_mlir import ir

from shardc.dialects.aten.call import CallReader
from shardc.dialects.aten.types import TensorType, read_type
from shardc.dialects.kern.kernel import TUNED, KernelOp, kernel_body, kernel_name, operand_types, result_types
from shardc.dialects.kern.linear_cross_entropy import LinearCrossEntropyOp
from shardc.dialects.location import source_line
from shardc.passes.fuse.grouping.capabilities import Capabilities
from shardc.passes.fuse.grouping.constraints import FusionConstraints
from shardc.passes.fuse.grouping.group import Decision
from shardc.passes.fuse.grouping.region import Choose, EveryRegion, Region, Verdict
from shardc.passes.fuse.kern_fuse import fuse_module, step_blocks
from shardc.passes.fuse.lower.matmul import TARGETS, matmul_calls
from shardc.passes.fuse.reading.graph import Step
from shardc.passes.fuse.reading.read import read_block
from shardc.passes.manager.program import program_functions


@dataclass(frozen=True)
class Traffic:
    """Launches, and the bytes of the tensors that calls read and write. A loop's body counts once."""

    launches: int = 0
    read_bytes: int = 0
    written_bytes: int = 0

    @property
    def moved_bytes(self) -> int:
        return self.read_bytes + self.written_bytes

    @staticmethod
    def total(parts: Iterable[Traffic]) -> Traffic:
        found = list(parts)
        return Traffic(
            *(sum(getattr(p, name) for p in found) for name in ("launches", "read_bytes", "written_bytes"))
        )


@dataclass(frozen=True)
class Op:
    """A call of the program: its number (block and call, as in ``kern.calls``), target and source line.

    ``why`` says why it can be in no kernel; empty if it can.
    """

    number: str
    target: str
    where: str | None
    why: str
    traffic: Traffic


@dataclass(frozen=True)
class Kernel:
    """A kernel and the calls that it stands for. ``apart`` is their traffic as calls: of one that several
    kernels share the parts of, in the first of these. ``tuned`` says in words what tuning found, where it
    found something.
    """

    name: str
    ops: tuple[Op, ...]
    traffic: Traffic
    apart: Traffic
    tuned: str = ""


@dataclass(frozen=True)
class FusionReport:
    """``pairs`` are all that were looked at; ``staying`` the calls that are in no kernel; ``choices`` what
    was decided of matmuls and attention; ``before`` and ``after`` are totals.
    """

    kernels: list[Kernel]
    staying: list[Op]
    pairs: list[tuple[Op, Op, Decision]]
    choices: list[tuple[Op, Verdict]]
    before: Traffic
    after: Traffic


def explain_fusion(
    module: ir.Module,
    rounding: str = "fused",
    exclude: frozenset[ir.Value] = frozenset(),
    without: frozenset[str] = frozenset(),
    constraints: FusionConstraints | None = None,
    writes: Sequence[tuple[int, int]] = (),
    matmuls: str | Choose = "extern",
    capabilities: Capabilities = Capabilities(),  # noqa: B008 (it is frozen)
) -> FusionReport:
    """Fuses ``module`` as :func:`~shardc.passes.fuse.kern_fuse.fuse_module` does, and reports.
    Raises what that raises.
    """
    verdicts: dict[str, Verdict] = {}
    calls = matmul_calls(matmuls) if isinstance(matmuls, str) else TARGETS
    ops = {op.number: op for op in _ops(module, exclude, calls)}
    noted = matmuls if isinstance(matmuls, str) else noting(matmuls, verdicts)
    decisions = fuse_module(
        module,
        rounding,
        exclude,
        without,
        constraints=constraints,
        writes=writes,
        matmuls=noted,
        capabilities=capabilities,
    )
    pairs = [(ops[first], ops[second], decision) for first, second, decision in decisions]
    chosen = [(ops[number], verdict) for number, verdict in verdicts.items()]
    return replace(_report(ops, module), pairs=pairs, choices=chosen)


def read_fusion(module: ir.Module, fused: ir.Module) -> FusionReport:
    """What was fused of ``module`` (level 3) in ``fused`` (level 4, made of it): without pairs and choices,
    which are not part of a program. Raises KeyError where the one was not made of the other.
    """
    return _report({op.number: op for op in _ops(module, frozenset(), TARGETS)}, fused)


def with_tuned(report: FusionReport, fused: ir.Module) -> FusionReport:
    """The report with what tuning found for the kernels of ``fused``, which it is of, since it was made."""
    kernels = zip(report.kernels, _kernels(fused), strict=True)
    return replace(report, kernels=[replace(kernel, tuned=_tuned(op)) for kernel, op in kernels])


def calls_in_kernels(fused: ir.Module) -> frozenset[str]:
    """The numbers of the calls that the kernels of a program stand for."""
    return frozenset(number for op in _kernels(fused) for number in _numbers(op))


def losses_in_kernels(fused: ir.Module) -> frozenset[str]:
    """The numbers of those that kernels with a ``kern.linear_cross_entropy`` stand for."""
    found = [
        op for op in _kernels(fused) if kernel_body(op)[1][0].name == LinearCrossEntropyOp.OPERATION_NAME
    ]
    return frozenset(number for op in found for number in _numbers(op))


def _report(ops: Mapping[str, Op], fused: ir.Module) -> FusionReport:
    """``ops`` are the calls of the program before; the kernels of ``fused`` name them by number."""
    kernels, inside = [], set[str]()
    for op in _kernels(fused):
        calls = tuple(ops[number] for number in _numbers(op))
        apart = Traffic.total(call.traffic for call in calls if call.number not in inside)
        traffic = Traffic(1, _bytes(operand_types(op)), _bytes(result_types(op)))
        kernels.append(Kernel(kernel_name(op), calls, traffic, apart, _tuned(op)))
        inside.update(call.number for call in calls)
    staying = [op for op in ops.values() if op.number not in inside]
    after = Traffic.total(part.traffic for part in (*kernels, *staying))
    return FusionReport(kernels, staying, [], [], Traffic.total(op.traffic for op in ops.values()), after)


def _tuned(kernel: ir.Operation) -> str:
    return ir.StringAttr(kernel.attributes[TUNED]).value if TUNED in kernel.attributes else ""


def _numbers(kernel: ir.Operation) -> list[str]:
    return [ir.StringAttr(number).value for number in kernel.attributes["kern.calls"]]


def noting(choose: Choose, verdicts: dict[str, Verdict]) -> Choose:
    """``choose``, its verdicts noted by the numbers of the matmuls."""

    def note(region: Region) -> Verdict:
        verdict = choose(region)
        verdicts.update(dict.fromkeys(region.calls, verdict))
        return verdict

    return EveryRegion(note) if isinstance(choose, EveryRegion) else note


def _blocks(module: ir.Module) -> list[ir.Block]:
    return [
        block
        for function in program_functions(module)
        for block in step_blocks(function.regions[0].blocks[0])
    ]


def _ops(module: ir.Module, exclude: frozenset[ir.Value], calls: frozenset[str]) -> list[Op]:
    """The calls of a program that is not fused yet: neither views nor arithmetic on sizes nor collectives."""
    found = []
    for number, block in enumerate(_blocks(module)):
        for step in read_block(block, CallReader(), exclude, calls=calls).steps:
            if not step.is_view and _is_call(step.op):
                where = source_line(step.op.location)
                found.append(
                    Op(
                        f"{number}.{step.number}",
                        step.target,
                        where,
                        "" if step.nodes else step.why,
                        _traffic(step),
                    )
                )
    return found


def _is_call(op: ir.Operation) -> bool:
    is_torch = op.name.startswith("torch.") and not op.name.startswith("torch.prim.")
    return is_torch and any(read_type(result.type) is not None for result in op.results)


def _traffic(step: Step) -> Traffic:
    reads = [read_type(v.ir.type) for v in dict.fromkeys(step.operands) if v.ir is not None]
    return Traffic(1, _bytes(reads), _bytes([read_type(result.type) for result in step.op.results]))


def _bytes(types: Sequence[TensorType | None]) -> int:
    return sum(t.size_bytes for t in types if t is not None and t.is_static)


def _kernels(module: ir.Module) -> list[ir.Operation]:
    ops = [op.operation for block in _blocks(module) for op in block.operations]
    return [op for op in ops if op.name == KernelOp.OPERATION_NAME]

"""Report of a fusion: kernels with their savings, pairs considered, and calls outside kernels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from torch_mlir import ir

from shardc.dialects.aten.call import CallReader
from shardc.dialects.aten.types import TensorType, read_type
from shardc.dialects.kern.kernel import TUNED, kernel_body, kernel_name, operand_types, result_types
from shardc.dialects.kern.linear_cross_entropy import LinearCrossEntropyOp
from shardc.dialects.location import source_line
from shardc.passes.fuse.grouping.capabilities import Capabilities
from shardc.passes.fuse.grouping.constraints import FusionConstraints
from shardc.passes.fuse.grouping.group import Decision
from shardc.passes.fuse.grouping.region import Choose, EveryRegion, Region, Verdict
from shardc.passes.fuse.kern_fuse import fuse_module, kernels_of
from shardc.passes.fuse.lower.matmul import TARGETS, matmul_calls
from shardc.passes.fuse.reading.graph import Step
from shardc.passes.fuse.reading.read import read_block
from shardc.passes.manager.program import program_blocks


@dataclass(frozen=True)
class Traffic:
    """Number of launches, and bytes that calls read and write. A loop's body counts once."""

    launches: int = 0
    read_bytes: int = 0
    written_bytes: int = 0

    @property
    def moved_bytes(self) -> int:
        return self.read_bytes + self.written_bytes

    @staticmethod
    def total(parts: Iterable[Traffic]) -> Traffic:
        found = [(part.launches, part.read_bytes, part.written_bytes) for part in parts]
        return Traffic(*map(sum, zip(*found, strict=True)))


@dataclass(frozen=True)
class Op:
    """Call of the program: its number (block and call, as in ``kern.calls``), target and source line.

    ``why``: reason why it cannot be in a kernel; empty if it can.
    """

    number: str
    target: str
    where: str | None
    why: str
    traffic: Traffic


@dataclass(frozen=True)
class Kernel:
    """Kernel and the calls that it replaces.

    ``apart`` is the traffic of these calls without fusion; a call in several kernels counts in the first.
    ``tuned`` describes the result of tuning, if there is one.
    """

    name: str
    ops: tuple[Op, ...]
    traffic: Traffic
    apart: Traffic
    tuned: str = ""


@dataclass(frozen=True)
class FusionReport:
    """Report of a fusion.

    ``pairs`` are all pairs considered, ``staying`` the calls in no kernel, ``choices`` the verdicts on
    matmuls and attention. ``before`` and ``after`` are totals of traffic.
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
    """Fuse ``module`` as :func:`~shardc.passes.fuse.kern_fuse.fuse_module` does (and raise), and report."""
    verdicts: dict[str, Verdict] = {}
    calls = matmul_calls(matmuls) if isinstance(matmuls, str) else TARGETS
    ops = {op.number: op for op in _ops(module, exclude, calls)}
    noted = matmuls if isinstance(matmuls, str) else noting(matmuls, verdicts)
    decisions = fuse_module(module, rounding, exclude, without, constraints, writes, noted, capabilities)
    pairs = [(ops[first], ops[second], decision) for first, second, decision in decisions]
    chosen = [(ops[number], verdict) for number, verdict in verdicts.items()]
    return replace(_report(ops, module), pairs=pairs, choices=chosen)


def read_fusion(module: ir.Module, fused: ir.Module) -> FusionReport:
    """Report the fusion of ``module`` (level 3) to ``fused`` (level 4), without pairs and choices.

    Those are not part of a program. Raises KeyError if ``fused`` was not made from ``module``.
    """
    return _report({op.number: op for op in _ops(module, frozenset(), TARGETS)}, fused)


def with_tuned(report: FusionReport, fused: ir.Module) -> FusionReport:
    """Return the report of ``fused`` with the results of later tuning."""
    kernels = zip(report.kernels, kernels_of(fused), strict=True)
    return replace(report, kernels=[replace(kernel, tuned=_tuned(op)) for kernel, op in kernels])


def calls_in_kernels(fused: ir.Module) -> frozenset[str]:
    """Return the numbers of the calls that the kernels of a program stand for."""
    return frozenset(number for op in kernels_of(fused) for number in _numbers(op))


def losses_in_kernels(fused: ir.Module) -> frozenset[str]:
    """Return the numbers of the calls that kernels with a ``kern.linear_cross_entropy`` replace."""
    name = LinearCrossEntropyOp.OPERATION_NAME
    found = [op for op in kernels_of(fused) if kernel_body(op)[1][0].name == name]
    return frozenset(number for op in found for number in _numbers(op))


def _report(ops: Mapping[str, Op], fused: ir.Module) -> FusionReport:
    """Return the report. ``ops``: calls of the program before fusion, by the numbers in ``kern.calls``."""
    kernels, inside = [], set[str]()
    for op in kernels_of(fused):
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
    """Return ``choose``, wrapped so that its verdicts are recorded by the numbers of matmuls."""

    def note(region: Region) -> Verdict:
        verdict = choose(region)
        verdicts.update(dict.fromkeys(region.calls, verdict))
        return verdict

    return EveryRegion(note) if isinstance(choose, EveryRegion) else note


def _ops(module: ir.Module, exclude: frozenset[ir.Value], calls: frozenset[str]) -> list[Op]:
    """Return the calls of an unfused program, without views, arithmetic on sizes and collectives."""
    found = []
    for block, body in enumerate(program_blocks(module)):
        for step in read_block(body, CallReader(), exclude, calls=calls).steps:
            if not step.is_view and _is_call(step.op):
                number, where = f"{block}.{step.number}", source_line(step.op.location)
                why = "" if step.nodes else step.why
                found.append(Op(number, step.target, where, why, _traffic(step)))
    return found


def _is_call(op: ir.Operation) -> bool:
    is_torch = op.name.startswith("torch.") and not op.name.startswith("torch.prim.")
    return is_torch and any(read_type(result.type) is not None for result in op.results)


def _traffic(step: Step) -> Traffic:
    reads = [read_type(v.ir.type) for v in dict.fromkeys(step.operands) if v.ir is not None]
    return Traffic(1, _bytes(reads), _bytes([read_type(result.type) for result in step.op.results]))


def _bytes(types: Sequence[TensorType | None]) -> int:
    return sum(t.size_bytes for t in types if t is not None and t.is_static)

"""Which ops of a flat rank program run in which time loop.

Programs are written as lines ``name = op operands``: ``slice`` takes an iteration's part, ``sum`` stands for
the way out of a loop, ``term`` makes each iteration's term of a sum, ``zeros`` has no operand, and any other
op is a call. They become MLIR with each op's name in ``dist.name``.
"""

from __future__ import annotations

from torch_mlir import ir

from shardc.dialects.context import new_context
from shardc.dialects.dist.mesh import read_mesh
from shardc.dialects.dist.sharding import ShardingCodec
from shardc.passes.manager.program import find_function
from shardc.passes.partition.loop_plan import LoopPlan, plan_loops
from shardc.passes.partition.reshard_lower import EDGE, EDGE_KIND

WHOLE, PART = "!torch.vtensor<[8,8],f32>", "!torch.vtensor<[4,8],f32>"
HEAD = """
"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["micro", 2, "time"]]} : () -> ()
func.func @step(%x: !torch.vtensor<[8,8],f32>, %y: !torch.vtensor<[8,8],f32>) {
  %one = torch.constant.int 1
  %none = torch.constant.none
  %shape = torch.prim.ListConstruct %one, %one : (!torch.int, !torch.int) -> !torch.list<int>
"""


def _module(program: str) -> str:
    types = {"x": WHOLE, "y": WHOLE}
    lines = []
    for line in program.strip().splitlines():
        name, _, call = line.strip().partition(" = ")
        op, *operands = call.split()
        given = [types[o] for o in operands]
        if op == "slice":
            types[name] = PART
            text = (
                f'"dist.slice"(%{operands[0]}) {{axes = ["micro"], dim = 0, dist.name = "{name}"}} : '
                f"({given[0]}) -> {PART}"
            )
        elif op == "device_slice":
            types[name] = PART
            text = (
                f'"dist.slice"(%{operands[0]}) {{axes = ["data"], dim = 0, dist.name = "{name}"}} : '
                f"({given[0]}) -> {PART}"
            )
        elif op == "sum":
            types[name] = given[0]
            attributes = f'{EDGE_KIND} = "sum", axes = ["micro"], dist.name = "{name}"'
            text = f'"{EDGE}"(%{operands[0]}) {{{attributes}}} : ({given[0]}) -> {given[0]}'
        elif op == "gather":
            types[name] = WHOLE
            attributes = f'axes = ["data"], dim = 0, dist.in_loop, dist.name = "{name}"'
            text = f'"dist.all_gather"(%{operands[0]}) {{{attributes}}} : ({given[0]}) -> {WHOLE}'
        elif op == "term":
            types[name] = given[0]
            sharding = '[#dist.sharding<@mesh, [[], []], [["sum", "micro"]]>]'
            text = (
                f'torch.aten.neg %{operands[0]} {{dist.name = "{name}", dist.shardings = {sharding}}} : '
                f"{given[0]} -> {given[0]}"
            )
        elif op == "zeros":
            types[name] = PART
            text = (
                f'torch.aten.zeros %shape, %none, %none, %none, %none {{dist.name = "{name}"}} : '
                f"!torch.list<int>, !torch.none, !torch.none, !torch.none, !torch.none -> {PART}"
            )
        elif op == "add":
            types[name] = given[0]
            text = (
                f'torch.aten.add.Tensor %{operands[0]}, %{operands[1]}, %one {{dist.name = "{name}"}} : '
                f"{given[0]}, {given[1]}, !torch.int -> {given[0]}"
            )
        else:
            types[name] = given[0]
            text = f'torch.aten.{op} %{operands[0]} {{dist.name = "{name}"}} : {given[0]} -> {given[0]}'
        lines.append(f"  %{name} = {text}")
    return HEAD + "\n".join(lines) + "\n  return\n}"


def _plan(program: str) -> tuple[LoopPlan, dict[str, list[str]]]:
    """The plan, and the names of the ops: ``before``, ``loop 0``, ``after 0``, ``loop 1``, ..."""
    with new_context():
        module = ir.Module.parse(_module(program))
        mesh, function = read_mesh(module), find_function(module)
        assert mesh is not None and function is not None
        plan = plan_loops(function.regions[0].blocks[0], ShardingCodec(module.context, mesh), mesh)
        names = {"before" if s == 0 else f"after {s - 1}": _names(ops) for s, ops in plan.outside.items()}
        names |= {f"loop {k}": _names(ops) for k, ops in plan.inside.items()}
        return plan, {place: found for place, found in names.items() if found}


def _names(ops: list[ir.Operation]) -> list[str]:
    return [op.attributes["dist.name"].value for op in ops]


def test_no_time_no_loop() -> None:
    plan, names = _plan("""
        a = relu x
        b = device_slice a
    """)
    assert plan.loops == 0
    assert names == {"before": ["a", "b"]}


def test_what_reads_an_iteration_is_inside_and_sums_lead_out() -> None:
    plan, names = _plan("""
        w = relu y
        a = slice x
        b = relu a
        c = sum b
        d = neg c
    """)
    assert plan.loops == 1
    assert names == {"loop 0": ["a", "b"], "after 0": ["w", "c", "d"]}


def test_a_term_that_no_iteration_changes_is_inside() -> None:
    """Such as the gradient of a bias that the loss is linear in: it is summed once for each iteration."""
    _, names = _plan("""
        a = relu x
        b = term a
        c = relu b
        d = sum b
        e = slice y
        f = sum e
    """)
    assert names == {"before": ["a"], "loop 0": ["b", "c", "e"], "after 0": ["d", "f"]}


def test_what_the_loop_reads_runs_before_it() -> None:
    _, names = _plan("""
        w = relu x
        v = neg y
        a = slice w
        b = relu a
        c = sum b
        d = add c v
    """)
    assert names == {"before": ["w"], "loop 0": ["a", "b"], "after 0": ["v", "c", "d"]}


def test_a_whole_value_between_two_parts_takes_two_loops() -> None:
    """Such as a norm over all gradients: its sum must be there before the second loop starts."""
    plan, names = _plan("""
        a = slice x
        b = relu a
        c = sum b
        d = neg c
        e = slice x
        f = add e d
        g = sum f
    """)
    assert plan.loops == 2
    assert names == {"loop 0": ["a", "b"], "after 0": ["c", "d"], "loop 1": ["e", "f"], "after 1": ["g"]}


def test_ops_run_in_the_last_loop_that_can_have_them() -> None:
    """``b`` could run in the first loop, but only the second reads it: computed there, it need
    not be kept.
    """
    _, names = _plan("""
        a = slice x
        b = relu a
        c = neg a
        d = sum c
        e = add b d
        f = sum e
    """)
    assert names["loop 0"] == ["a", "c"]
    assert names["loop 1"] == ["b", "e"]


def test_gathers_marked_for_the_loop_run_in_every_iteration() -> None:
    """A parameter stored in pieces (ZeRO-3) is gathered inside, although it is the same in each iteration."""
    _, names = _plan("""
        p = device_slice x
        w = gather p
        a = slice w
        b = relu a
        c = sum b
    """)
    assert names == {"before": ["p"], "loop 0": ["w", "a", "b"], "after 0": ["c"]}


def test_gathers_that_no_iteration_reads_run_outside() -> None:
    """Experts that compute blocks of the whole batch read a parameter between two loops."""
    _, names = _plan("""
        p = device_slice x
        w = gather p
        v = neg w
        a = slice y
        b = sum a
        c = add v b
        d = neg c
        e = slice d
        f = sum e
    """)
    assert names == {
        "loop 0": ["a"],
        "after 0": ["p", "w", "v", "b", "c", "d"],
        "loop 1": ["e"],
        "after 1": ["f"],
    }


def test_a_part_that_is_alike_in_all_iterations_is_made_in_the_loop_that_stacks_it() -> None:
    """Such as zeros, of which each iteration has its part: they take no iteration's part of anything."""
    _, names = _plan("""
        a = relu x
        b = sum a
        c = neg b
    """)
    assert names == {"loop 0": ["a"], "after 0": ["b", "c"]}


def test_every_inside_op_knows_its_loop() -> None:
    plan, _ = _plan("""
        a = slice x
        b = sum a
        c = slice y
        d = add c b
        e = sum d
    """)
    assert sorted(plan.loop_of.values()) == [0, 1, 1]


def test_zeros_that_one_loop_reads_are_made_in_it() -> None:
    _, names = _plan("""
        z = zeros
        a = slice x
        b = add a z
        c = sum b
    """)
    assert names == {"loop 0": ["z", "a", "b"], "after 0": ["c"]}


def test_zeros_that_others_read_are_made_before() -> None:
    _, names = _plan("""
        z = zeros
        a = slice x
        b = add a z
        c = sum b
        d = slice y
        e = add d c
        f = add e z
        g = sum f
    """)
    assert names["before"] == ["z"]
    assert names["loop 1"] == ["d", "e", "f"]
    _, names = _plan("""
        z = zeros
        a = slice x
        b = add a z
        c = sum b
        d = neg z
    """)
    assert names == {"before": ["z"], "loop 0": ["a", "b"], "after 0": ["c", "d"]}

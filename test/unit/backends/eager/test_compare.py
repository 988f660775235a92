"""The oracle on the design example: the right rank program passes, and each wrong one is caught and named."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

import shardc
from shardc.backends.eager.interpreter import run
from shardc.backends.eager.proof.compare import compare_step
from shardc.backends.eager.proof.perturb import perturbed
from shardc.backends.eager.proof.tolerance import Tolerance, own_precision
from shardc.diagnostics.oracle import ExecutionFailed, MissingInput, NoStep, ProgramsDiffer


def change(text: str, old: str, new: str) -> str:
    """``text`` with one passage replaced, which must be there once."""
    assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in the program"
    return text.replace(old, new)


def without(text: str, result: str) -> str:
    """A program in which the collective that makes ``%result`` hands on its operand."""
    found = re.search(rf'%{result} = "dist\.all_reduce"\(%(\S+)\) \{{(.*?)\}} : \((\S+)\) -> \S+', text)
    assert found is not None, f"no all-reduce makes %{result}"
    value, attributes, type_ = found.groups()
    named = attributes.partition("dist.name")
    kept = f", dist.name{named[2]}" if named[1] else ""
    sharding = "[]" if type_ == "!s" else "[[]]" if type_ == "!bi" else "[[], []]"
    layout = f"sharding = #dist.sharding<@mesh, {sharding}, []>"
    new = f'%{result} = "dist.reshard"(%{value}) {{{layout}{kept}}} : ({type_}) -> {type_}'
    return text.replace(found.group(0), new)


def test_level_1_is_what_torch_trains(parse, two_layer):
    module, values = parse(two_layer.LEVEL_1), {k: t.double() for k, t in two_layer.inputs().items()}
    values["seed", "seed"] = values["seed", "seed"].long()
    losses, params, gradients = two_layer.trained_with_torch(steps=2)
    seen: dict[str, torch.Tensor] = {}
    for step in range(2):
        arguments = [[t] for t in values.values()]
        results = run(
            module, arguments, widen=True, observe=lambda name, by_rank, op: seen.update({name: by_rank[0]})
        )
        assert results[0][0].item() == pytest.approx(losses[step], rel=1e-12)
        for key, (value,) in zip(list(values)[:6], results[1:], strict=True):
            values[key] = value
    for name in params:
        torch.testing.assert_close(values["param", name], params[name], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(seen[f"grad:{name}"], gradients[name], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("widen", [True, False], ids=["f64", "own precision"])
def test_level_3_equals_level_1(parse, two_layer, widen):
    found = compare_step(
        parse(two_layer.LEVEL_1), parse(two_layer.LEVEL_3), two_layer.inputs(), steps=3, widen=widen
    )
    assert found.passed, found.render()
    names = {f"{row.role}:{row.name}" for row in found.rows}
    updates = set() if widen else {f"param:{name} (update)" for name in ("w1", "b1", "w2")}
    assert names == updates | {
        "loss:loss",
        *(f"{role}:{name}" for role in ("grad", "param") for name in ("w1", "b1", "w2")),
        "opt_state:w1/momentum",
        "opt_state:b1/momentum",
        "opt_state:w2/momentum",
    }
    count = 30 if widen else 39
    assert len(found.rows) == count and not found.unobserved
    assert found.render().startswith(f"equal: {count} comparisons")


def test_an_annotated_program_holds_global_values(parse, two_layer):
    # Level 2: every argument and result says how it will lie on the mesh, and still has its global type.
    head = two_layer.LEVEL_3
    mesh = head[head.index('"dist.mesh"') : head.index("func.func")]
    layouts = {
        "w1": '[[], ["tensor"]]',
        "b1": "[[]]",
        "w2": '[["tensor"], []]',
        "x": '[["data", "micro"], []]',
        "y": '[["data", "micro"], []]',
        "s": "[]",
        "i": "[]",
    }
    text = re.sub(
        r'!(\w+) \{dist\.role = "',
        lambda m: (
            f"!{m[1]} {{dist.sharding = #dist.sharding<@mesh, {layouts[m[1]]}, []>, "
            f'dist.global_type = !{m[1]}, dist.role = "'
        ),
        two_layer.LEVEL_1,
    )
    assert text.count("dist.global_type") == 17
    found = compare_step(parse(two_layer.LEVEL_1), parse(mesh + text), two_layer.inputs(), steps=2)
    assert found.passed and len(found.rows) == 20, found.render()


def test_the_inputs_are_not_changed(parse, two_layer):
    values = two_layer.inputs()
    compare_step(parse(two_layer.LEVEL_1), parse(two_layer.LEVEL_3), values, steps=2)
    for key, tensor in two_layer.inputs().items():
        assert torch.equal(values[key], tensor)


@pytest.mark.parametrize(
    ("collective", "role", "name"),
    [
        ("out", "loss", "loss"),
        ("loss", "loss", "loss"),
        ("g_w1", "grad", "w1"),
        ("g_b1_mine", "grad", "b1"),
        ("g_w2", "grad", "w2"),
    ],
)
@pytest.mark.parametrize("widen", [True, False], ids=["f64", "own precision"])
def test_a_missing_all_reduce_is_caught_and_named(parse, two_layer, collective, role, name, widen):
    wrong = parse(without(two_layer.LEVEL_3, collective))
    found = compare_step(parse(two_layer.LEVEL_1), wrong, two_layer.inputs(), widen=widen)
    assert not found.passed
    first = found.first_failure
    assert first is not None and (first.role, first.name) == (role, name)
    assert f"the first in the program at {role} '{name}' of step 0" in found.render()
    assert first.error > 1e-2


WRONG = {
    "gradients averaged over data": (
        'axes = ["data"], reduction = "sum", dist.name = "grad:w1"',
        'axes = ["data"], reduction = "max", dist.name = "grad:w1"',
        "grad",
        "w1",
    ),
    "an iteration is not added": (
        "torch.aten.add.Tensor %s_w2, %g_w2, %c1",
        "torch.aten.mul.Tensor %s_w2, %g_w2",
        "grad",
        "w2",
    ),
    "the wrong rows": (
        '"dist.slice"(%ys) {dim = 0, axes = ["micro"]}',
        '"dist.slice"(%ys) {dim = 0, axes = ["data"]}',
        "loss",
        "loss",
    ),
    "the loss of one device's rows": ("float 0.025", "float 0.05", "loss", "loss"),
    "an update without momentum": (
        "torch.aten.mul.Tensor %n_w1, %lr",
        "torch.aten.mul.Tensor %g_w1, %lr",
        "param",
        "w1",
    ),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_other_mistakes_are_caught_and_named(parse, two_layer, mistake):
    old, new, role, name = WRONG[mistake]
    text = change(two_layer.LEVEL_3, old, new)
    text = text.replace("%s_w2, %g_w2 : !w2, !w2, !torch.int", "%s_w2, %g_w2 : !w2, !w2")
    found = compare_step(parse(two_layer.LEVEL_1), parse(text), two_layer.inputs())
    first = found.first_failure
    assert first is not None and (first.role, first.name) == (role, name), found.render()


@pytest.mark.parametrize("update", ["%g_w1", "%d_w1"])
def test_a_wrong_update_is_caught_in_its_own_precision(parse, two_layer, update):
    """Each element lies within the two learning rates that Adam may need; the update as a whole does not."""
    text = change(
        two_layer.LEVEL_3, "torch.aten.mul.Tensor %n_w1, %lr", f"torch.aten.mul.Tensor {update}, %lr"
    )
    inputs = perturbed(two_layer.inputs(), parse(two_layer.LEVEL_1))
    found = compare_step(parse(two_layer.LEVEL_1), parse(text), inputs, widen=False)
    failed = {(row.role, row.name) for row in found.failures}
    assert ("param", "w1 (update)") in failed, found.render()


def test_replicas_that_drift_apart_are_caught_though_the_first_is_right(parse, two_layer):
    # Rank 0 has the right b1; the others add zero times NaN-free noise: b1 + offset.
    old = "%p_b1 = torch.aten.sub.Tensor %b1, %u_b1, %1 : !b1, !b1, !torch.int -> !b1"
    new = """%rank = "dist.offset"() {axes = ["data"], extent = 1, scale = 1, base = 0} : () -> !torch.int
      %right = torch.aten.sub.Tensor %b1, %u_b1, %1 : !b1, !b1, !torch.int -> !b1
      %p_b1 = torch.aten.add.Scalar %right, %rank, %1 : !b1, !torch.int, !torch.int -> !b1"""
    wrong = parse(change(two_layer.LEVEL_3, old, new))
    found = compare_step(parse(two_layer.LEVEL_1), wrong, two_layer.inputs())
    assert [(row.role, row.name) for row in found.failures] == [("param", "b1 (between ranks)")]


def test_a_gradient_named_inside_the_loop_is_the_sum_of_its_iterations(parse, two_layer):
    text = change(two_layer.LEVEL_3, ', dist.name = "grad:w2", dist.shardings = [#w2]', "")
    terms = '#dist.sharding<@mesh, [["tensor"], []], [["sum", "data", "micro"]]>'
    inside = f'%act_t, %g_out {{dist.name = "grad:w2", dist.shardings = [{terms}]}} :'
    named = parse(change(text, "%act_t, %g_out :", inside))
    found = compare_step(parse(two_layer.LEVEL_1), named, two_layer.inputs())
    assert found.passed and not found.unobserved, found.render()
    assert ("grad", "w2") in {(row.role, row.name) for row in found.rows}


def test_a_lost_name_is_told(parse, two_layer):
    lost = change(two_layer.LEVEL_3, ', dist.name = "grad:w1", dist.shardings = [#w1]', "")
    found = compare_step(parse(two_layer.LEVEL_1), parse(lost), two_layer.inputs())
    assert found.passed and found.unobserved == ["grad:w1"]
    assert "not observed in the rank program: grad:w1" in found.render()


def test_nan_is_never_equal(parse, two_layer):
    values = two_layer.inputs()
    values["input", "x"][0, 0] = float("nan")
    found = compare_step(parse(two_layer.LEVEL_1), parse(two_layer.LEVEL_3), values)
    assert not found.passed and found.first_failure.error == float("inf")


def test_the_caller_may_ask_for_less(parse, two_layer):
    wrong = parse(without(two_layer.LEVEL_3, "g_w2"))
    found = compare_step(parse(two_layer.LEVEL_1), wrong, two_layer.inputs(), tolerance=Tolerance(10.0))
    assert found.passed


class CloseSamples(nn.Module):
    """A batch norm over four samples that hardly differ magnifies the rounding of what is before it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.up, self.down = nn.Linear(256, 64), nn.Linear(64, 256)
        self.norm, self.head = nn.BatchNorm1d(256, eps=1e-12), nn.Linear(256, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.norm(self.down(torch.tanh(self.up(x))))))


def test_a_program_that_magnifies_rounding_is_not_called_wrong():
    model = CloseSamples()
    optimizer, x = torch.optim.SGD(model.parameters(), lr=0.1), torch.randn(1, 256)
    batch = (x + 1e-3 * torch.randn(4, 256),)
    options = {"mesh": {"tensor": 2}, "plan": "tensor", "fuse": False}
    step = shardc.compile_step(model, optimizer, batch, loss=lambda y, _: y.square().mean(), **options)
    proof = step.check(steps=1)
    assert proof.exact.passed and proof.own.passed, str(proof)
    usual = own_precision(torch.float32).relative
    assert max(row.error for row in proof.own.rows if row.role == "grad") > usual


def test_a_missing_input_is_named(parse, two_layer):
    values = two_layer.inputs()
    del values["param", "w2"]
    with pytest.raises(
        MissingInput, match=r"no value was given for the param 'w2'(.|\n)*shape \[6, 5\](.|\n)*w1"
    ):
        compare_step(parse(two_layer.LEVEL_1), parse(two_layer.LEVEL_3), values)


def test_another_step_is_refused(parse, two_layer):
    other = two_layer.LEVEL_3.replace('dist.name = "b1"', 'dist.name = "bias"')
    with pytest.raises(ProgramsDiffer, match="the rank program has no param 'b1' among its arguments"):
        compare_step(parse(two_layer.LEVEL_1), parse(other), two_layer.inputs())


def test_state_that_changes_its_layout_is_refused(parse, two_layer):
    head, arrow, rest = two_layer.LEVEL_3.partition(") -> (")
    bad = (
        head
        + arrow
        + rest.replace('dist.name = "w2", dist.sharding = #w2', 'dist.name = "w2", dist.sharding = #w1', 1)
    )
    with pytest.raises(ProgramsDiffer, match=r"param 'w2' is sharded as .* before the step and as"):
        compare_step(parse(two_layer.LEVEL_1), parse(bad), two_layer.inputs())


def test_a_module_without_a_step_is_refused(parse, two_layer):
    with pytest.raises(NoStep, match="@step"):
        compare_step(parse("module {}"), parse(two_layer.LEVEL_3), two_layer.inputs())


def test_an_op_that_fails_is_named_with_its_line(parse, two_layer):
    bad = change(
        two_layer.LEVEL_3,
        "%xw = torch.aten.mm %xi, %cw1 : !xi, !w1 -> !hi",
        '%xw = torch.aten.mm %cw1, %xi : !w1, !xi -> !hi loc("net.py":12:3)',
    )
    with pytest.raises(ExecutionFailed, match=r"aten.mm could not be executed: (.|\n)*at: net.py:12"):
        compare_step(parse(two_layer.LEVEL_1), parse(bad), two_layer.inputs())

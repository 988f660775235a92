"""Short axes whose steps share work, or are adjacent in memory, against eager in f64."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
import torch.nn.functional as F
from bodies import Body
from test_lowered_graphs import check
from test_schedule import CHOOSE, loops_of, schedule
from torch import Tensor

from shardc.passes.fuse.bodies import whole


def _shaded(normal: Tensor, light: Tensor) -> Tensor:
    normal = F.normalize(normal, dim=1)
    facing = (normal * F.normalize(light, dim=1)[:, :, None, None]).sum(1, keepdim=True)
    return normal * facing.clamp(min=0) + facing.exp()


def _turned(q: Tensor, v: Tensor) -> Tensor:
    w, *axis = F.normalize(q, dim=-1).unbind(-1)
    across = torch.cross(torch.stack(axis, -1), v, dim=-1)
    return torch.stack([w * across[:, n] + axis[n] * v.sum(-1) for n in range(3)], -1)


def _filtered(x: Tensor) -> Tensor:
    before, last, made = torch.zeros_like(x[0]), torch.zeros_like(x[0]), []
    for n in range(x.shape[0]):
        last, before = 0.2 * x[n] + 1.2 * last.tanh() - 0.5 * before, last
        made.append(last)
    return torch.stack(made)


def _reactions(x: Tensor, rate: Tensor) -> Tensor:
    a, b, c = x
    for _ in range(12):
        first, second, third = rate[0] * a, rate[1] * b * c, rate[2] * b * b
        a, b, c = a + 0.01 * (second - first), b + 0.01 * (first - second - third), c + 0.01 * third
    return torch.stack([a, b, c])


def _smoothed(x: Tensor) -> Tensor:
    level, made = x[..., 0], []
    for n in range(x.shape[-1]):
        level = 0.9 * level + 0.1 * x[..., n]
        made.append(level)
    return torch.stack(made, -1) * x


def check_gradients(f: Callable[..., Tensor], *tensors: Tensor) -> None:
    """Compare the values and gradients of compiled ``f`` with eager in f64."""

    def both(call: Callable[..., Tensor], given: Sequence[Tensor]) -> list[Tensor]:
        leaves = [t.detach().requires_grad_() for t in given]
        made = call(*leaves)
        return [made.detach(), *torch.autograd.grad(made.sin().sum(), leaves)]

    torch._dynamo.reset()
    found = both(torch.compile(f, backend="shardc", dynamic=False), tensors)
    for got, exact in zip(found, both(f, [t.double() for t in tensors]), strict=True):
        bound = 2e-5 * max(1.0, float(exact.abs().max()))
        torch.testing.assert_close(got.double(), exact, rtol=2e-5, atol=bound)


@pytest.mark.parametrize(
    ("f", "shapes"),
    [
        (_shaded, [(3, 3, 9, 11), (3, 3)]),
        (_shaded, [(1, 4, 20, 7), (1, 4)]),
        (_turned, [(203, 4), (203, 3)]),
        (_filtered, [(24, 130)]),
        (_smoothed, [(5, 26, 24)]),
    ],
)
def test_values(f: Callable[..., Tensor], shapes: list[tuple[int, ...]], threads: int) -> None:
    check_gradients(f, *map(torch.randn, shapes))


@pytest.mark.filterwarnings("error::shardc.diagnostics.dynamo.ShardcFallbackWarning")
def test_parts_that_one_kernel_reads_alone_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others read them as parts of one tensor, and it computes values of others again."""
    monkeypatch.setattr(whole, "FEWEST_PARTS", 2)
    check_gradients(_reactions, torch.rand(3, 5000), torch.rand(3, 5000))


def _lengths(shape: tuple[int, int, int]) -> Body:
    """Vectors along dim 1, over their length: a square root and a quotient that they share."""
    body = Body("lengths")
    rows, _, columns = shape
    x, y = body.argument(shape), body.argument((rows, columns))
    code = "%s = math.sqrt %1 : f32\n%q = arith.divf %s, %1 : f32\n%r = arith.mulf %0, %q : f32"
    body.results = [body.map([x, (y, "d0, d2")], code)]
    return body


def test_steps_that_share_work_are_written_out_inside_of_the_long_loop() -> None:
    (nest,), _ = schedule(_lengths((40, 3, 50)))
    assert [nest.sizes[a] for a in nest.written_out] == [3] and [nest.sizes[a] for a in nest.rows] == [40]
    assert loops_of(_lengths((40, 3, 50))).count("scf.for") == 2


def test_more_steps_or_little_work_stay_a_loop() -> None:
    (nest,), _ = schedule(_lengths((40, 5, 50)))
    assert not nest.written_out
    body = Body("scaled")
    x, y = body.argument((40, 3, 50)), body.argument((40, 50))
    body.results = [body.map([x, (y, "d0, d2")], "%r = arith.mulf %0, %1 : f32")]
    (nest,), _ = schedule(body)
    assert not nest.written_out


@pytest.mark.parametrize("parts", [2, 24])
def test_adjacent_parts_of_a_stack_are_no_transposed_read(parts: int) -> None:
    """The steps of a loop over time along the last dim would be computed again for each of them."""
    body = Body("stack")
    x, y, z = body.argument((64,)), body.argument((64,)), body.argument((64, parts))
    code = CHOOSE.replace("%r =", "%s =") + "\n%r = arith.addf %s, %2 : f32"
    body.results = [body.map([(x, "d0"), (y, "d0"), z], code)]
    (nest,), _ = schedule(body)
    assert not nest.transposed and [nest.sizes[a] for a in nest.written_out] == [parts]


def test_powers_of_masked_scores_do_not_underflow() -> None:
    """Where the result is 0 the argument is replaced: the product would underflow, which is slow."""
    x = torch.full((64, 70), -torch.inf)
    x[:, ::3], x[:, ::7] = -1e4, torch.nan
    check(lambda x: [x.exp().T.contiguous(), x.exp2().T.contiguous()], x)


def _film(y: Tensor, u: Tensor, v: Tensor) -> Tensor:
    u, v = (t.repeat_interleave(2, 1).repeat_interleave(2, 2).float() - 128 for t in (u, v))
    y = 1.164 * (y.float() - 16)
    made = torch.stack([y + 1.596 * v, y - 0.392 * u - 0.813 * v, y + 2.017 * u], 1)
    return made.round().clamp(0, 255).to(torch.uint8)


def test_pixels_that_share_chroma(threads: int) -> None:
    y, u, v = (torch.randint(256, (2, n, m), dtype=torch.uint8) for n, m in ((10, 70), (5, 35), (5, 35)))
    with torch.no_grad():
        assert torch.equal(torch.compile(_film, backend="shardc")(y, u, v), _film(y, u, v))


def test_differences_of_slices_of_planes(threads: int) -> None:
    def edges(x: Tensor) -> Tensor:
        rows = x[..., :-2, :] + 2 * x[..., 1:-1, :] + x[..., 2:, :]
        return (rows[..., 2:] - rows[..., :-2]).sin()

    check_gradients(edges, torch.randn(2, 3, 12, 40))

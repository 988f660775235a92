"""``shardc::attention`` and its backward: scaled dot product attention as one op on every device.

Shapes: q [B, H, Sq, D], k [B, Hkv, Sk, D], v [B, Hkv, Sk, Dv], where Hkv divides H and query head h uses key
head h // (H / Hkv); mask [B|1, H|1, Sq|1, Sk|1], added to the scores where it is floating and kept where it
is true where it is bool; out [B, H, Sq, Dv] in q's dtype; lse [B, H, Sq], the logarithm of the sum of the
exponentials of each row's scores, in float32 (float64 for float64). With ``causal``, row i sees the columns j
<= i + q_offset, so that a shard of the rows keeps its place. A row that sees nothing gives 0, lse -inf and no
gradient.

The lse makes partial results mergeable: attention over two parts of the columns is their sum, weighted by
``exp(lse_part - lse)``, and ``attention_backward`` of a part takes the out and lse of the whole.

Two paths, equal but for rounding: torch's fused kernels where they apply, else plain torch ops over chunks of
rows (Rabe and Staats, "Self-attention does not need O(n^2) memory", 2021; backward as in Dao et al.,
FlashAttention, 2022, appendix B). Both accumulate in lse's dtype. The probabilities of the backward pass are
exp(score - lse): a row whose every score is about finfo.min has lost log(n) in lse to rounding and so gets
gradients n times too large, as in every flash kernel; mask such rows with -inf.

The ops are defined when this module is imported.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .define import define, wide

SCHEMA = (
    "(Tensor q, Tensor k, Tensor v, Tensor? mask, bool causal, float scale, int q_offset=0) -> "
    "(Tensor out, Tensor lse)"
)
BACKWARD_SCHEMA = (
    "(Tensor grad_out, Tensor q, Tensor k, Tensor v, Tensor? mask, Tensor out, Tensor lse, "
    "bool causal, float scale, int q_offset) -> (Tensor dq, Tensor dk, Tensor dv)"
)

FLASH, CUDNN, EFFICIENT = "flash", "cudnn", "efficient"
LIBRARIES = (CUDNN, EFFICIENT)
"""Overloads of both ops that prefer another of torch's GPU kernels to flash attention.

If that kernel does not support the operands, an overload behaves like the op, which uses flash attention or
else the memory-efficient kernels.
"""

CHUNK_SCORES = {"cpu": 1 << 20, "cuda": 1 << 26}
"""Number of scores that the plain path computes at once, chosen for cache or memory. Backward holds three."""
EFFICIENT_ROWS, BIAS_COLUMNS = 32, 16
"""Multiples to which memory-efficient attention pads lse's rows and aligns its bias's columns."""
CHUNK_ROWS = 32
"""Minimum number of rows in a chunk: fewer make slow matmuls."""

Grads = tuple[Tensor, Tensor, Tensor]


class Problem(NamedTuple):
    """Operands and settings of one attention, in the order of the op's arguments."""

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor | None
    causal: bool
    scale: float
    q_offset: int = 0
    library: str = FLASH

    def part(self, rows: slice, cols: slice, causal: bool) -> Problem:
        """Return the rectangle of these rows and columns. ``causal``: mask it from its corner on."""
        q, k, v = self.q[:, :, rows], self.k[:, :, cols], self.v[:, :, cols]
        return Problem(q, k, v, _cut(self.mask, rows, cols), causal, self.scale, library=self.library)


def _check(problem: Problem) -> None:
    """Raise ValueError unless the operands' shapes and dtypes are as in the module's docstring."""
    q, k, v, mask, *_ = problem
    shapes = f"q {list(q.shape)}, k {list(k.shape)}, v {list(v.shape)}"
    if not q.dim() == k.dim() == v.dim() == 4:
        raise ValueError(f"shardc::attention: q, k and v must have 4 dims, got {shapes}")
    if not (q.dtype == k.dtype == v.dtype and q.is_floating_point()):
        dtypes = f"{q.dtype}, {k.dtype}, {v.dtype}"
        raise ValueError(f"shardc::attention: q, k and v need one floating dtype, got {dtypes}")
    if q.shape[0] != k.shape[0] or k.shape[:3] != v.shape[:3] or q.shape[3] != k.shape[3]:
        raise ValueError(f"shardc::attention: shapes do not fit together: {shapes}")
    if k.shape[1] == 0 or q.shape[1] % k.shape[1] != 0:
        raise ValueError(f"shardc::attention: the heads of k must divide those of q: {shapes}")
    if mask is None:
        return
    full = [*q.shape[:3], k.shape[2]]
    if mask.dim() != 4 or any(m not in (1, n) for m, n in zip(mask.shape, full, strict=True)):
        raise ValueError(
            f"shardc::attention: mask {list(mask.shape)} must have 4 dims, each 1 or as in {full}"
        )
    if mask.dtype != torch.bool and not mask.is_floating_point():
        raise ValueError(f"shardc::attention: mask must be bool or floating, got {mask.dtype}")


def _cut(mask: Tensor | None, rows: slice, cols: slice) -> Tensor | None:
    """Return the part of a mask for these rows and columns. Dims of size 1 are kept."""
    if mask is None:
        return None
    return mask[:, :, rows if mask.shape[2] > 1 else slice(None), cols if mask.shape[3] > 1 else slice(None)]


def _unseen(problem: Problem, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return out, in this dtype, and lse for rows that see nothing."""
    q, v = problem.q, problem.v
    out = torch.zeros(*q.shape[:3], v.shape[3], dtype=dtype, device=q.device)
    return out, torch.full(q.shape[:3], -math.inf, dtype=wide(q.dtype), device=q.device)


# The plain path.


def _chunks(problem: Problem) -> Iterator[tuple[slice, slice]]:
    """Yield chunks of rows, each with the columns that any of its rows sees."""
    (batch, heads, sq, _), sk = problem.q.shape, problem.k.shape[2]
    budget = CHUNK_SCORES["cpu" if problem.q.device.type == "cpu" else "cuda"]
    step = max(CHUNK_ROWS, budget // max(1, batch * heads * sk))
    for start in range(0, sq, step):
        stop = min(start + step, sq)
        seen = max(0, min(sk, stop + problem.q_offset)) if problem.causal else sk
        if seen and batch and heads:
            yield slice(start, stop), slice(0, seen)


def _grouped(x: Tensor, rows: slice, kv_heads: int, dtype: torch.dtype) -> Tensor:
    """Return rows of [B, H, S, D] with each key head's query heads stacked: [B, Hkv, H / Hkv * rows, D]."""
    batch, heads, _, size = x.shape
    height = heads // kv_heads * (rows.stop - rows.start)
    return x[:, :, rows].to(dtype).reshape(batch, kv_heads, height, size)


def _scores(problem: Problem, q: Tensor, k: Tensor, rows: slice, cols: slice) -> Tensor:
    """Return masked scores [B, H, rows, cols] of grouped, scaled rows of q and of k [B, Hkv, cols, D]."""
    scores = (q @ k.mT).view(q.shape[0], -1, rows.stop - rows.start, cols.stop)
    mask = _cut(problem.mask, rows, cols)
    if mask is not None and mask.dtype == torch.bool:
        scores.masked_fill_(mask.logical_not(), -math.inf)
    elif mask is not None:
        scores += mask
    first, last = rows.start + problem.q_offset, rows.stop + problem.q_offset
    if problem.causal and first + 1 < cols.stop:
        seen = torch.arange(first, last, device=q.device).unsqueeze(1)
        scores.masked_fill_(torch.arange(cols.stop, device=q.device) > seen, -math.inf)
    return scores


def plain_attention(problem: Problem) -> tuple[Tensor, Tensor]:
    """Compute out and lse with plain torch ops, by chunks of rows. Any device, floating dtype and Dv work."""
    q, dtype, kv_heads = problem.q, wide(problem.q.dtype), problem.k.shape[1]
    out, lse = _unseen(problem, q.dtype)
    k, v = problem.k.to(dtype), problem.v.to(dtype)
    for rows, cols in _chunks(problem):
        scaled = _grouped(q, rows, kv_heads, dtype) * problem.scale
        scores = _scores(problem, scaled, k[:, :, cols], rows, cols)
        top = scores.amax(-1, keepdim=True)
        top.masked_fill_(top == -math.inf, 0)
        weights = scores.sub_(top).exp_()
        total = weights.sum(-1, keepdim=True)
        lse[:, :, rows] = (total.log() + top).squeeze(-1)
        weights /= total.masked_fill_(total == 0, 1)
        part = weights.view(*scaled.shape[:3], -1) @ v[:, :, cols]
        out[:, :, rows] = part.view(*out[:, :, rows].shape)
    return out, lse


def plain_attention_backward(problem: Problem, grad_out: Tensor, out: Tensor, lse: Tensor) -> Grads:
    """Compute dq, dk and dv with plain torch ops, by chunks of rows."""
    q, dtype, kv_heads = problem.q, wide(problem.q.dtype), problem.k.shape[1]
    k, v = problem.k.to(dtype), problem.v.to(dtype)
    dq = torch.zeros(q.shape, dtype=q.dtype, device=q.device)
    dk, dv = (torch.zeros(x.shape, dtype=dtype, device=x.device) for x in (k, v))
    for rows, cols in _chunks(problem):
        scaled, grad, result = (_grouped(x, rows, kv_heads, dtype) for x in (q, grad_out, out))
        scaled = scaled * problem.scale
        scores = _scores(problem, scaled, k[:, :, cols], rows, cols)
        row_lse = lse[:, :, rows].unsqueeze(-1)
        weights = scores.sub_(row_lse.masked_fill(row_lse == -math.inf, 0)).exp_()
        weights = weights.view(*scaled.shape[:3], -1)
        dv[:, :, cols] += weights.mT @ grad
        slope = grad @ v[:, :, cols].mT
        slope.sub_((grad * result).sum(-1, keepdim=True)).mul_(weights)
        dk[:, :, cols] += slope.mT @ scaled
        dq[:, :, rows] = (slope @ k[:, :, cols]).mul_(problem.scale).view(*dq[:, :, rows].shape)
    return dq, dk.to(q.dtype), dv.to(q.dtype)


# The fused path. torch's kernels support causal masks only from the top left corner, without an offset.


def _fusable(problem: Problem) -> Problem | None:
    """Return the problem with the library that has a fused kernel for it; None if there is none.

    Empty operands crash the CPU's kernel, so they have none.
    """
    q = problem.q
    if min(*q.shape, *problem.v.shape) == 0 or q.shape[3] != problem.v.shape[3]:
        return None
    if q.device.type == "cpu":
        return problem if q.dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16) else None
    if q.device.type != "cuda" or torch.version.cuda is None:
        return None
    if torch.cuda.get_device_capability(q.device) < (8, 0):
        return None
    library = library_for(problem)
    return None if library is None else problem._replace(library=library)


def library_for(problem: Problem) -> str | None:
    """Return the first of the preferred library, flash and efficient that supports the operands, or None."""
    return next((name for name in (problem.library, FLASH, EFFICIENT) if _takes(name, problem)), None)


def _takes(library: str, problem: Problem) -> bool:
    """Return True if a library supports the problem.

    Its causal masks have at least as many columns as rows.
    """
    q, k, v, mask, causal, _, q_offset, _ = problem
    square = not causal or k.shape[2] >= q.shape[2] + q_offset or q_offset >= k.shape[2] - 1
    width = q.shape[3]
    if 0 in (*q.shape, *v.shape) or width != v.shape[3] or width % 8 or width > 256 or not square:
        return False
    if library == EFFICIENT:
        fits = mask is None or (not causal and mask.dtype in (torch.bool, q.dtype))
        return fits and q.dtype in (torch.bfloat16, torch.float16, torch.float32)
    return mask is None and q.dtype in (torch.bfloat16, torch.float16)


def _pieces(problem: Problem) -> list[tuple[slice, slice, bool]]:
    """Return rectangles (rows, columns, is causal) that cover every visible score once.

    Every row sees the columns below the offset; for the columns after them, the mask starts at the corner.
    With a negative offset the first rows see nothing.
    """
    sq, sk, q_offset = problem.q.shape[2], problem.k.shape[2], problem.q_offset
    if not problem.causal or q_offset >= sk - 1:
        return [(slice(0, sq), slice(0, sk), False)]
    first, left, right = max(0, -q_offset), max(0, q_offset), min(sk, sq + q_offset)
    pieces = [(slice(0, sq), slice(0, left), False)] if left else []
    if first < sq:
        pieces.append((slice(first, sq), slice(left, right), True))
    return pieces


def _dense(x: Tensor) -> Tensor:
    """Return x with a contiguous last dim, which the fused kernels assume without a check."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _as_made(x: Tensor) -> Tensor:
    """Return a GPU tensor in the library's layout, which models undo by a view; a CPU tensor contiguous."""
    return x if x.device.type == "cuda" else x.contiguous()


def _additive(mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """Return the mask in a form for the fused CPU kernel: floating, in q's dtype or the accumulator's."""
    if mask is None:
        return None
    if mask.dtype == torch.bool:
        zeros = torch.zeros(mask.shape, dtype=dtype, device=mask.device)
        return zeros.masked_fill_(mask.logical_not(), -math.inf)
    return _dense(mask if mask.dtype == dtype else mask.to(wide(dtype)))


def _prepared(problem: Problem) -> Problem:
    """Return the problem with operands in the form that the fused kernels require."""
    q, k, v, mask, *_ = problem
    return problem._replace(q=_dense(q), k=_dense(k), v=_dense(v), mask=_additive(mask, q.dtype))


def _dead_rows(mask: Tensor, sq: int, causal: bool) -> Tensor:
    """Return which rows see nothing, broadcastable to [B, H, Sq].

    The fused CPU kernel returns lse 0 there.
    """
    live = mask != -math.inf
    dead = live.any(-1).logical_not()
    if causal:
        first = live.to(torch.uint8).argmax(-1)
        dead = dead | (first > torch.arange(sq, device=mask.device))
    return dead


def _piece_forward(piece: Problem) -> tuple[Tensor, Tensor]:
    """Compute out and lse of one rectangle with the device's kernel."""
    q, k, v, mask, causal, scale, _, library = piece
    if q.device.type == "cuda" and library == CUDNN:
        kernel = torch.ops.aten._scaled_dot_product_cudnn_attention
        made = kernel(q, k, v, None, True, 0.0, causal, scale=scale)
        return made[0], made[1].reshape(q.shape[:3])
    if q.device.type == "cuda" and library == EFFICIENT:
        k, v = (_each_head(x, q.shape[1]) for x in (k, v))
        kernel = torch.ops.aten._scaled_dot_product_efficient_attention
        made = kernel(q, k, v, _bias(mask, q, k), True, 0.0, causal, scale=scale)
        return _without_dead_rows(made[0], made[1].narrow(2, 0, q.shape[2]), mask)
    if q.device.type == "cuda":
        kernel = torch.ops.aten._scaled_dot_product_flash_attention
        return kernel(q, k, v, 0.0, causal, False, scale=scale)[:2]
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    out, lse = kernel(q, k, v, 0.0, causal, attn_mask=mask, scale=scale)
    if mask is not None:
        lse.masked_fill_(_dead_rows(mask, q.shape[2], causal), -math.inf)
    return out, lse


def _piece_backward(piece: Problem, grad_out: Tensor, out: Tensor, lse: Tensor) -> Grads:
    """Compute the gradients of one rectangle with the device's kernel.

    lse is the whole problem's, and finite.
    """
    q, k, v, mask, causal, scale, _, library = piece
    if q.device.type == "cuda" and library != FLASH:
        return _library_backward(piece, grad_out, out, lse.contiguous())
    if q.device.type == "cuda":
        lse = lse.contiguous()  # the kernel ignores its strides
        unused = torch.empty(2, dtype=torch.uint64, device=q.device)  # dropout's state; dropout is off
        sizes = (None, None, q.shape[2], k.shape[2])
        kernel = torch.ops.aten._scaled_dot_product_flash_attention_backward
        return kernel(grad_out, q, k, v, out, lse, *sizes, 0.0, causal, unused, unused, scale=scale)
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
    return kernel(grad_out, q, k, v, out, lse, 0.0, causal, attn_mask=mask, scale=scale)


def _library_backward(piece: Problem, grad_out: Tensor, out: Tensor, lse: Tensor) -> Grads:
    """Run :func:`_piece_backward` with cuDNN, or with torch's memory-efficient kernels."""
    q, k, v, mask, causal, scale, _, library = piece
    unused = torch.zeros((), dtype=torch.int64, device=q.device)  # dropout's state; dropout is off
    if library == CUDNN:
        kernel = torch.ops.aten._scaled_dot_product_cudnn_attention_backward
        state = (unused, unused, None, None, None, q.shape[2], k.shape[2], 0.0)
        return kernel(grad_out, q, k, v, out, lse.unsqueeze(-1), *state, causal, scale=scale)
    padded = torch.ops.aten.constant_pad_nd(lse, [0, -q.shape[2] % EFFICIENT_ROWS], math.inf)
    kernel = torch.ops.aten._scaled_dot_product_efficient_attention_backward
    wanted = (True, True, True, False)
    out = out.transpose(1, 2).contiguous().transpose(1, 2)  # the kernel assumes this order
    every = [_each_head(x, q.shape[1]) for x in (k, v)]
    bias = _bias(mask, q, k)
    made = kernel(grad_out, q, *every, bias, out, padded, unused, unused, 0.0, wanted, causal, scale=scale)
    return made[0], _of_groups(made[1], k.shape[1]), _of_groups(made[2], k.shape[1])


def _each_head(x: Tensor, heads: int) -> Tensor:
    """Repeat keys or values so that each query head has its own."""
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], 1)


def _of_groups(x: Tensor, kv_heads: int) -> Tensor:
    """Sum gradients of repeated keys or values over the query heads of each key head."""
    return x if x.shape[1] == kv_heads else x.unflatten(1, (kv_heads, -1)).sum(2)


def _bias(mask: Tensor | None, q: Tensor, k: Tensor) -> Tensor | None:
    """Expand a floating mask to every score, with rows aligned to ``BIAS_COLUMNS`` for the kernel's loads."""
    if mask is None:
        return None
    columns = k.shape[2]
    mask = mask.expand(*mask.shape[:3], columns)
    aligned = torch.ops.aten.constant_pad_nd(mask, [0, -columns % BIAS_COLUMNS], 0.0).contiguous()
    return aligned.narrow(3, 0, columns).expand(*q.shape[:3], columns)


def _without_dead_rows(out: Tensor, lse: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Set out to 0 and lse to -inf for rows that see nothing, whatever the library returned."""
    if mask is None:
        return out, lse
    dead = _dead_rows(mask, out.shape[2], causal=False)
    return out.masked_fill_(dead.unsqueeze(-1), 0), lse.masked_fill(dead, -math.inf)


def fused_attention(problem: Problem) -> tuple[Tensor, Tensor]:
    """Compute out and lse with torch's fused kernels, merged over the rectangles of an offset causal mask."""
    problem, pieces = _prepared(problem), _pieces(problem)
    if len(pieces) == 1 and pieces[0][0].start == 0:
        part, part_lse = _piece_forward(problem.part(*pieces[0]))
        return _as_made(part), part_lse.contiguous()
    out, lse = _unseen(problem, wide(problem.q.dtype))
    for rows, cols, causal in pieces:
        part, part_lse = _piece_forward(problem.part(rows, cols, causal))
        before = lse[:, :, rows]
        both = torch.logaddexp(before, part_lse)
        base = both.masked_fill(both == -math.inf, 0)
        kept, added = ((x - base).exp().unsqueeze(-1) for x in (before, part_lse))
        out[:, :, rows] = out[:, :, rows] * kept + part * added
        lse[:, :, rows] = both
    return out.to(problem.q.dtype), lse


def fused_attention_backward(problem: Problem, grad_out: Tensor, out: Tensor, lse: Tensor) -> Grads:
    """Compute dq, dk and dv with torch's fused kernels, summed over rectangles of an offset causal mask."""
    problem, pieces = _prepared(problem), _pieces(problem)
    grad_out, out, lse = _dense(grad_out), _dense(out), lse.masked_fill(lse == -math.inf, 0)
    whole = slice(0, problem.q.shape[2]), slice(0, problem.k.shape[2])
    if len(pieces) == 1 and pieces[0][:2] == whole:
        dq, dk, dv = _piece_backward(problem.part(*pieces[0]), grad_out, out, lse)
        return _as_made(dq), _as_made(dk), _as_made(dv)
    dq, dk, dv = (torch.zeros(x.shape, dtype=x.dtype, device=x.device) for x in problem[:3])
    for rows, cols, causal in pieces:
        given = (x[:, :, rows] for x in (grad_out, out, lse))
        part = _piece_backward(problem.part(rows, cols, causal), *given)
        dq[:, :, rows] += part[0]
        dk[:, :, cols], dv[:, :, cols] = part[1], part[2]
    return dq, dk, dv


# The ops.


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    causal: bool,
    scale: float,
    q_offset: int = 0,
    *,
    library: str = FLASH,
) -> tuple[Tensor, Tensor]:
    """Run ``shardc::attention``: out and lse, contiguous on CPUs. Raises ValueError for unfit operands."""
    problem = Problem(q, k, v, mask, causal, scale, q_offset, library)
    _check(problem)
    fused = _fusable(problem)
    return plain_attention(problem) if fused is None else fused_attention(fused)


def attention_backward(
    grad_out: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    out: Tensor,
    lse: Tensor,
    causal: bool,
    scale: float,
    q_offset: int,
    *,
    library: str = FLASH,
) -> Grads:
    """Run ``shardc::attention_backward``: dq, dk, dv like q, k and v, contiguous on CPUs."""
    problem = Problem(q, k, v, mask, causal, scale, q_offset, library)
    _check(problem)
    fused = _fusable(problem)
    if fused is None:
        return plain_attention_backward(problem, grad_out, out, lse)
    return fused_attention_backward(fused, grad_out, out, lse)


def _fake_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float, q_offset: int = 0
) -> tuple[Tensor, Tensor]:
    _check(Problem(q, k, v, mask, causal, scale, q_offset))
    return q.new_empty(*q.shape[:3], v.shape[3]), q.new_empty(q.shape[:3], dtype=wide(q.dtype))


def _fake_attention_backward(grad_out: Tensor, q: Tensor, k: Tensor, v: Tensor, *rest: object) -> Grads:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _setup_context(
    ctx: Any, inputs: tuple[Tensor | float | None, ...], output: tuple[Tensor, Tensor]
) -> None:
    """Save what the backward pass needs; lse has no gradient of its own."""
    q, k, v, mask, *ctx.settings = inputs
    if ctx.needs_input_grad[3]:
        what = "shardc::attention has no gradient for its mask, but the mask requires grad."
        raise RuntimeError(f"{what} Detach it, or write this attention as matmul and softmax.")
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(q, k, v, mask, *output)


def _autograd(ctx: Any, grad_out: Tensor | None, grad_lse: None) -> tuple[Tensor | None, ...]:
    """Return the gradients of (q, k, v, mask, causal, scale, q_offset)."""
    grads = (None, None, None)
    if grad_out is not None:
        grads = torch.ops.shardc.attention_backward(grad_out, *ctx.saved_tensors, *ctx.settings)
    return (*grads, None, None, None, None)


def _no_second_derivative(ctx: Any, *grads: Tensor | None) -> None:
    what = "shardc::attention_backward has no derivative: use matmul and softmax for second derivatives."
    raise RuntimeError(what)


_forward = {name: partial(attention, library=name) for name in LIBRARIES}
_backward = {name: partial(attention_backward, library=name) for name in LIBRARIES}
define("attention_backward", BACKWARD_SCHEMA, attention_backward, _fake_attention_backward, _backward)
if define("attention", SCHEMA, attention, _fake_attention, _forward):
    torch.library.register_autograd("shardc::attention", _autograd, setup_context=_setup_context)
    torch.library.register_autograd("shardc::attention_backward", _no_second_derivative)

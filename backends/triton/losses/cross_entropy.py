"""Writer of the text of Triton modules for ``kern.linear_cross_entropy`` and its backward.

Forward loops over tiles of classes and keeps each row's largest logit and sum of exponentials so far
(Milakov and Gimelshein, Online normalizer calculation for softmax, 2018). Separate programs handle separate
parts of the classes, and a second function combines them. Backward handles one chunk of the classes at a
time: the gradients of its logits (the slopes), for all rows, stay in memory until both products with them are
computed. The order of every sum is fixed.
"""

from __future__ import annotations

from dataclasses import dataclass

from shardc.backends.triton.emit.text import precision_lines, precision_of
from shardc.backends.triton.matmul.tiles import cast, masked_load
from shardc.cost.matmul import Tiling
from shardc.dialects.kern.linear_cross_entropy import LinearCrossEntropy
from shardc.dialects.kern.types import ELEMENTS
from shardc.runtime.kernels.kernel_call import FINE


@dataclass(frozen=True)
class Writer:
    """Writes the functions' bodies. ``name`` is the module's; ``chunk``: classes at a time in backward."""

    name: str
    spec: LinearCrossEntropy
    tf32: bool
    chunk: int = 0
    scale: float = 1.0

    @property
    def _bias(self) -> str:
        """Return the parameter, which is also the argument in a call; empty without a bias."""
        return "bias_ptr, " if "bias" in self.spec.tensors else ""

    @property
    def _precision(self) -> str:
        return precision_of(ELEMENTS[self.spec.dtype])

    def _cast(self, value: str) -> str:
        return cast(value, self.spec.dtype)

    def constants(self) -> list[str]:
        """Return the lines that define the module's sizes and settings."""
        spec = self.spec
        lines = [
            f"ROWS = tl.constexpr({spec.rows})",
            f"CLASSES = tl.constexpr({spec.classes})",
            f"SIZE = tl.constexpr({spec.size})  # of a row",
            "LOG2E = tl.constexpr(1.4426950408889634)",
        ]
        if self.chunk:
            lines += [
                f"CHUNK = tl.constexpr({self.chunk})  # classes whose slopes are in memory at a time",
                f"SCALE = tl.constexpr({self.scale!r})  # of grad",
            ]
        return [*lines, *precision_lines(ELEMENTS[spec.dtype], self.tf32)]

    def logits(self, t: Tiling) -> str:
        """Return the function ``name_logits``."""
        rest = self.spec.size % t.block_k
        bias = "\n    total += tl.load(bias_ptr + tl.minimum(n, CLASSES - 1)).to(tl.float32)[None, :]"
        return f'''@triton.jit
def {self.name}_logits(
    rows_ptr, weight_ptr, {self._bias}m, n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The logits of BLOCK_M rows and BLOCK_N classes, in f32. Beyond the last of either stand those of the last."""
    k = tl.arange(0, BLOCK_K)
    left = rows_ptr + tl.minimum(m, ROWS - 1)[:, None].to(tl.int64) * SIZE + k[None, :]
    right = weight_ptr + tl.minimum(n, CLASSES - 1)[None, :].to(tl.int64) * SIZE + k[:, None]
    total = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for start in tl.range(0, SIZE, BLOCK_K):
        row = {masked_load("left + start", ("start + k[None, :] < SIZE", rest))}
        column = {masked_load("right + start", ("start + k[:, None] < SIZE", rest))}
        total = tl.dot(row, column, total{self._precision}){bias * bool(self._bias)}
    return total'''  # noqa: E501

    # Forward

    def forward(self, total: bool) -> list[str]:
        """Return the body of ``name``: BLOCK_M rows, TILES tiles of classes. ``total``: also sum logits."""
        return [
            "blocks = tl.cdiv(ROWS, BLOCK_M)",
            "m = tl.program_id(0) % blocks * BLOCK_M + tl.arange(0, BLOCK_M)",
            "part = tl.program_id(0) // blocks",
            "index = tl.load(index_ptr + m, mask=m < ROWS, other=-1)",
            'best = tl.full([BLOCK_M], float("-inf"), tl.float32)  # of each row\'s logits so far',
            "total = tl.zeros([BLOCK_M], tl.float32)  # of exp(logit - best)",
            "picked = tl.zeros([BLOCK_M], tl.float32)  # the logit of the row's class",
            *(["summed = tl.zeros([BLOCK_M], tl.float32)  # all of the row's logits"] if total else []),
            "low = part * TILES * BLOCK_N",
            "for start in tl.range(low, tl.minimum(low + TILES * BLOCK_N, CLASSES), BLOCK_N):",
            "    n = start + tl.arange(0, BLOCK_N)",
            f"    logit = {self.name}_logits(rows_ptr, weight_ptr, {self._bias}m, n, BLOCK_M, BLOCK_N, "
            f"BLOCK_K)",
            "    is_class = n[None, :] < CLASSES",
            "    picked += tl.sum(tl.where(is_class & (n[None, :] == index[:, None]), logit, 0.0), 1)",
            *(["    summed += tl.sum(tl.where(is_class, logit, 0.0), 1)"] if total else []),
            '    logit = tl.where(is_class, logit, float("-inf"))',
            "    best_now = tl.maximum(best, tl.max(logit, 1))",
            '    shift = tl.where(best_now == float("-inf"), 0.0, best_now)',
            "    total = total * tl.exp2((best - shift) * LOG2E) + tl.sum(tl.exp2((logit - shift[:, None]) "
            "* LOG2E), 1)",
            "    best = best_now",
            "tl.store(best_ptr + part * ROWS + m, best, mask=m < ROWS)",
            "tl.store(sums_ptr + part * ROWS + m, total, mask=m < ROWS)",
            "tl.store(picked_ptr + part * ROWS + m, picked, mask=m < ROWS)",
            *(["tl.store(summed_ptr + part * ROWS + m, summed, mask=m < ROWS)"] if total else []),
        ]

    def join(self, total: bool, top: bool) -> list[str]:
        """Return the body of ``name_join``: combines parts of BLOCK rows. ``total``, ``top``: also stored."""
        return [
            "m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)",
            'best = tl.full([BLOCK], float("-inf"), tl.float32)',
            "total = tl.zeros([BLOCK], tl.float32)",
            "picked = tl.zeros([BLOCK], tl.float32)",
            *(["summed = tl.zeros([BLOCK], tl.float32)"] if total else []),
            "for part in range(PARTS):",
            "    at = part * ROWS + m",
            "    best_here = tl.load(best_ptr + at, mask=m < ROWS, other=0.0)",
            "    total_here = tl.load(sums_ptr + at, mask=m < ROWS, other=1.0)",
            "    picked += tl.load(picked_ptr + at, mask=m < ROWS, other=0.0)",
            *(["    summed += tl.load(summed_ptr + at, mask=m < ROWS, other=0.0)"] if total else []),
            "    best_now = tl.maximum(best, best_here)",
            '    shift = tl.where(best_now == float("-inf"), 0.0, best_now)',
            "    total = total * tl.exp2((best - shift) * LOG2E) + total_here * tl.exp2((best_here - "
            "shift) * LOG2E)",
            "    best = best_now",
            "lse = best + tl.log(total)",
            "tl.store(logp_ptr + m, picked - lse, mask=m < ROWS)",
            "tl.store(lse_ptr + m, lse, mask=m < ROWS)",
            *(["tl.store(total_ptr + m, summed - CLASSES * lse, mask=m < ROWS)"] if total else []),
            *(["tl.store(top_ptr + m, best, mask=m < ROWS)"] if top else []),
        ]

    def wrong(self) -> list[str]:
        """Return the body of ``name_wrong``."""
        return [
            f"largest = tl.full([BLOCK], {FINE}, tl.int64)",
            "for start in range(0, ROWS, BLOCK):",
            "    m = start + tl.arange(0, BLOCK)",
            "    index = tl.load(index_ptr + m, mask=m < ROWS, other=0)",
            "    is_wrong = (index < 0) | (index >= CLASSES)",
            f"    largest = tl.maximum(largest, tl.where(is_wrong, index.to(tl.int64), {FINE}))",
            "tl.store(wrong_ptr, tl.max(largest, 0))",
        ]

    # Backward

    def slopes(self) -> list[str]:
        """Return the body of ``name_slopes``: a tile of the gradients of a chunk's logits."""
        return [
            f"row, column = {self.name}_place(tl.program_id(0), tl.cdiv(ROWS, BLOCK_M), tl.cdiv(CHUNK, "
            f"BLOCK_N), GROUP)",
            "m = row * BLOCK_M + tl.arange(0, BLOCK_M)",
            "at = column * BLOCK_N + tl.arange(0, BLOCK_N)",
            "n = tl.multiple_of(first, 16) + at",
            f"logit = {self.name}_logits(rows_ptr, weight_ptr, {self._bias}m, n, BLOCK_M, BLOCK_N, BLOCK_K)",
            "grad = tl.load(grad_ptr + m, mask=m < ROWS, other=0.0) * SCALE",
            "lse = tl.load(lse_ptr + m, mask=m < ROWS, other=0.0)",
            "index = tl.load(index_ptr + m, mask=m < ROWS, other=-1)",
            "hit = (n[None, :] == index[:, None]).to(tl.float32)",
            "share = tl.exp2((logit - lse[:, None]) * LOG2E)",
            *self._slope(),
            "slope = tl.where(n[None, :] < CLASSES, slope, 0.0)",
            "into = slopes_ptr + m[:, None].to(tl.int64) * CHUNK + at[None, :]",
            f"tl.store(into, {self._cast('slope')}, mask=m[:, None] < ROWS)",
        ]

    def _slope(self) -> list[str]:
        """Return the lines that compute the logits' gradients from ``grad``, ``hit`` and ``share``."""
        spread = ["spread = tl.load(spread_ptr + m, mask=m < ROWS, other=0.0)"]
        spread *= "spread" in self.spec.tensors
        if "sums" in self.spec.tensors:
            added = "spread[:, None] + " if spread else ""
            return [
                *spread,
                "sums = tl.load(sums_ptr + m, mask=m < ROWS, other=0.0)  # of a row's gradients, over all "
                "classes",
                f"slope = {added}grad[:, None] * hit - sums[:, None] * share",
            ]
        more = [*spread, "slope += spread[:, None] * (1.0 - CLASSES * share)"] if spread else []
        return ["slope = grad[:, None] * (hit - share)", *more]

    def dweight(self, t: Tiling) -> list[str]:
        """Return the body of ``name_dweight``: a tile of the gradient of a chunk's weights."""
        terms, size = self.spec.rows % t.block_k, self.spec.size % t.block_n
        k_limit = ("k[None, :] < SIZE", size)
        return [
            f"row, column = {self.name}_place(tl.program_id(0), tl.cdiv(CHUNK, BLOCK_M), tl.cdiv(SIZE, "
            f"BLOCK_N), GROUP)",
            "at = row * BLOCK_M + tl.arange(0, BLOCK_M)",
            "k = column * BLOCK_N + tl.arange(0, BLOCK_N)",
            "step = tl.arange(0, BLOCK_K)",
            "left = slopes_ptr + step[None, :] * CHUNK + at[:, None]",
            "right = rows_ptr + step[:, None] * SIZE + k[None, :]",
            "total = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)",
            "for start in tl.range(0, ROWS, BLOCK_K):",
            f"    slope = {masked_load('left', ('start + step[None, :] < ROWS', terms))}",
            f"    value = {masked_load('right', ('start + step[:, None] < ROWS', terms), k_limit)}",
            f"    total = tl.dot(slope, value, total{self._precision})",
            "    left += BLOCK_K * CHUNK",
            "    right += BLOCK_K * SIZE",
            "n = tl.multiple_of(first, 16) + at",
            "into = dweight_ptr + n[:, None].to(tl.int64) * SIZE + k[None, :]",
            f"tl.store(into, {self._cast('total')}, mask=(n[:, None] < CLASSES) & (k[None, :] < SIZE))",
        ]

    def dbias(self) -> list[str]:
        """Return the body of ``name_dbias``: the gradient of BLOCK_N of a chunk's biases."""
        return [
            "at = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)",
            "total = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)",
            "for start in tl.range(0, ROWS, BLOCK_M):",
            "    m = start + tl.arange(0, BLOCK_M)",
            "    slope = slopes_ptr + m[:, None].to(tl.int64) * CHUNK + at[None, :]",
            "    inside = (m[:, None] < ROWS) & (at[None, :] < CHUNK)",
            "    total += tl.load(slope, mask=inside, other=0.0).to(tl.float32)",
            "n = first + at",
            f"tl.store(dbias_ptr + n, {self._cast('tl.sum(total, 0)')}, mask=(at < CHUNK) & (n < CLASSES))",
        ]

    def drows(self, t: Tiling, factor: str, sums: str) -> list[str]:
        """Return the body of ``name_drows``: a chunk's slopes times ``factor``, added to ``sums`` in f32."""
        terms, size = self.spec.classes % t.block_k, self.spec.size % t.block_n
        k_limit = ("k[None, :] < SIZE", size)
        lines = [
            f"row, column = {self.name}_place(tl.program_id(0), tl.cdiv(ROWS, BLOCK_M), tl.cdiv(SIZE, "
            f"BLOCK_N), GROUP)",
            "m = row * BLOCK_M + tl.arange(0, BLOCK_M)",
            "k = column * BLOCK_N + tl.arange(0, BLOCK_N)",
            "step = tl.arange(0, BLOCK_K)",
            "left = slopes_ptr + tl.minimum(m, ROWS - 1)[:, None].to(tl.int64) * CHUNK + step[None, :]",
            f"right = {factor} + tl.multiple_of(first, 16).to(tl.int64) * SIZE + step[:, None] * SIZE + "
            f"k[None, :]",
            "total = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)",
            "classes = tl.minimum(CHUNK, CLASSES - first)",
            "for start in tl.range(0, classes, BLOCK_K):",
            "    slope = tl.load(left + start)",
            f"    value = {masked_load('right', ('start + step[:, None] < classes', terms), k_limit)}",
            f"    total = tl.dot(slope, value, total{self._precision})",
            "    right += BLOCK_K * SIZE",
            "inside = (m[:, None] < ROWS) & (k[None, :] < SIZE)",
            "at = m[:, None].to(tl.int64) * SIZE + k[None, :]",
            "if first > 0:",
            f"    total += tl.load({sums} + at, mask=inside, other=0.0)",
        ]
        if sums == "drows_ptr":
            return [*lines, "tl.store(drows_ptr + at, total, mask=inside)"]
        return [
            *lines,
            "if first + CHUNK < CLASSES:",
            f"    tl.store({sums} + at, total, mask=inside)",
            "else:",
            f"    tl.store(drows_ptr + at, {self._cast('total')}, mask=inside)",
        ]

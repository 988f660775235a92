"""Space of attention and its backward: blocks of queries in lanes, blocks of keys, parts of a head's keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shardc.backends.cpu.attention.shared import block_of_queries
from shardc.backends.cpu.config import Config
from shardc.backends.cpu.lanes.lanes import chunks, tile_rows
from shardc.backends.tuning.space import Parameter, Sketch
from shardc.cost.machine import Cpu
from shardc.dialects.kern.attention_maps import Attention
from shardc.dialects.kern.size import hint

KEYS = (16, 32, 64, 128, 256, 512)
AWAY = 0.03
"""Penalty of a value other than the default: 16 to 64 queries by 32 to 256 keys are within 10%."""


def sketch(spec: Attention, backward: bool, threads: int, machine: Cpu) -> Sketch:
    """Return the configurations of a ``kern.attention`` or its backward."""
    lanes = machine.vector_bytes // 4
    sizes = {d: hint(spec.sizes[d]) for d in "bhmnde"}
    widths = {block_of_queries(sizes["m"], v * lanes, lanes) for v in range(1, 9)}
    keys = {k for k in (*KEYS, Config().keys) if k < sizes["n"]}
    if sizes["n"] <= KEYS[-1]:
        keys.add(max(1, sizes["n"]))
    parameters = [Parameter("queries", tuple(sorted(widths))), Parameter("keys", tuple(sorted(keys)))]
    heads = sizes["b"] * spec.kv_heads
    if backward and threads > 1 and heads < threads:
        parameters.append(Parameter("key_parts", tuple(n for n in (1, 2, 4, 8, 16) if n <= 2 * threads)))
    found = _Attention(sizes, spec, backward, threads, machine)
    name = "attention_backward" if backward else "attention"
    return Sketch(name, tuple(parameters), found.refusal, found.estimate_s, found.counts)


@dataclass(frozen=True)
class _Attention:
    sizes: Mapping[str, int]
    spec: Attention
    backward: bool
    threads: int
    machine: Cpu

    def held(self, queries: int, keys: int) -> int:
        """Return the bytes of a thread's buffers that are used for each block of keys."""
        row = self.sizes["d"] + self.sizes["e"]
        blocks = queries * keys * (2 if self.backward else 1)
        return 4 * (blocks + queries * row * (3 if self.backward else 1))

    def refusal(self, values: Mapping[str, int]) -> str | None:
        queries, keys = values["queries"], values["keys"]
        held, most = self.held(queries, keys), 3 * self.machine.caches[1] // 4
        if held > most and keys > 16:
            return f"{queries} queries by {keys} keys take {held} bytes of the second cache's {most}"
        parts = -(-self.sizes["n"] // keys)
        if values.get("key_parts", 1) > parts:
            return f"{values['key_parts']} parts of {parts} blocks of keys"
        return None

    def estimate_s(self, values: Mapping[str, int]) -> float:
        lanes = self.machine.vector_bytes // 4
        queries = block_of_queries(self.sizes["m"], Config().queries, lanes)
        away = (values["queries"] != queries) + (values["keys"] != min(Config().keys, self.sizes["n"]))
        return self._seconds(values) * (1 + AWAY * away)

    def counts(self, values: Mapping[str, int]) -> Mapping[str, float]:
        """Return the number of computed blocks, their bytes, and cycles of each kind."""
        queries, keys, s = values["queries"], values["keys"], self.sizes
        vectors, seen = queries // (self.machine.vector_bytes // 4), self._seen(queries, keys)
        row = s["d"] + s["e"]
        return {
            "blocks": seen,
            "held": self.held(queries, keys),
            "scores": 4 * queries * keys,
            "block of keys": 4 * keys * row,
            "block of queries": 4 * queries * row,
            "products": seen * keys * vectors * self._cycles_per_product(vectors) * row,
            "exponentials": seen * keys * vectors * self.machine.exponential,
            "edge": seen * keys * queries,
            "keys again": seen * keys * row,
        }

    def _seconds(self, values: Mapping[str, int]) -> float:
        queries, keys, s, machine = values["queries"], values["keys"], self.sizes, self.machine
        lanes = machine.vector_bytes // 4
        vectors, blocks = queries // lanes, -(-s["m"] // queries)
        seen = self._seen(queries, keys)
        rate = self._cycles_per_product(vectors)
        near = machine.rates[0] / machine.rate(self.held(queries, keys))
        product = keys * vectors * rate * (0.85 + 0.15 * near)
        over = 3 * s["d"] + 2 * s["e"] if self.backward else s["d"] + s["e"]
        ends = (5 if self.backward else 2) * machine.block
        block = product * over + keys * vectors * machine.exponential * (1.3 if self.backward else 1.0) + ends
        block += keys * (s["d"] + s["e"]) * 4 / machine.rates[1] * 0.5
        if not self.backward:
            block += s["e"] * vectors * 1.5
        turn = queries * (s["d"] + s["e"]) * (0.6 if not self.backward else 3.0) / lanes * 4
        units = s["b"] * s["h"] * blocks
        busy = max(1, min(self.threads, units if not self.backward else self._units(values)))
        return s["b"] * s["h"] * (seen * block + blocks * turn) / busy / machine.clock_hz

    def _units(self, values: Mapping[str, int]) -> int:
        heads = self.sizes["b"] * self.spec.kv_heads
        return heads * min(values.get("key_parts", Config().key_parts), max(1, self.threads // heads))

    def _seen(self, queries: int, keys: int) -> float:
        """Return the number of a head's blocks of scores that are computed."""
        m, n = self.sizes["m"], self.sizes["n"]
        rows = -(-m // queries)
        if not self.spec.causal:
            return rows * (n / keys if n % keys else n // keys)
        ends = [min(n, max(0, (r + 1) * queries + self.spec.likely_offset)) for r in range(rows)]
        return sum(max(0.0, end / keys) for end in ends) + 0.1 * rows

    def _cycles_per_product(self, vectors: int) -> float:
        """Return the cycles of a vector of sums for each term, in the tiles of ``lanes.Product``."""
        total = 0.0
        for count in chunks(vectors, self.machine.registers):
            rows = tile_rows(count, self.machine.registers)
            loads = rows + count
            bound = max(rows * count / self.machine.fma, self.machine.latency, loads / 2)
            total += count * (bound + 0.12 * loads) / (rows * count)
        return total / vectors

"""State of users' objects (schedulers, data loaders, averages) as JSON and tensors, without pickles."""

from __future__ import annotations

import base64
import ctypes
import hashlib
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from ..arguments import in_words
from ..check import Json
from ..errors import BadCheckpoint, StateNotSaved, WrongArgument

TAG = "#"
"""Key of a JSON object that encodes a value that JSON lacks: a tuple, a tensor, a dict with other keys."""
RANDOM = "random numbers"
"""Name of the entry for this process's random generators."""
MAKERS: dict[str, Callable[[list[object]], object]] = {"tuple": tuple, "set": set, "frozenset": frozenset}


class Stateful(Protocol):
    """Object whose state a checkpoint can hold, such as a scheduler, a data loader or an averaged model."""

    def state_dict(self) -> Mapping[str, object]: ...
    def load_state_dict(self, state_dict: dict[str, object], /) -> object: ...


class Generators:
    """Random generators of this process other than the step's: torch's, ``random`` and NumPy's."""

    def state_dict(self) -> dict[str, object]:
        found: dict[str, object] = {"torch": torch.get_rng_state(), "python": random.getstate()}
        if torch.cuda.is_available():
            found["cuda"] = torch.cuda.get_rng_state()
        if numpy := sys.modules.get("numpy"):
            found["numpy"] = numpy.random.get_state(legacy=False)
        return found

    def load_state_dict(self, state_dict: Json) -> None:
        torch.set_rng_state(state_dict["torch"])
        random.setstate(state_dict["python"])
        if "cuda" in state_dict and torch.cuda.is_available():
            torch.cuda.set_rng_state(state_dict["cuda"])
        if "numpy" in state_dict and (numpy := sys.modules.get("numpy")):
            state = state_dict["numpy"]
            state["state"]["key"] = state["state"]["key"].numpy()
            numpy.random.set_state(state)


def pack(objects: Mapping[str, Stateful | None]) -> tuple[Json, dict[str, Tensor]]:
    """Return the entries of a checkpoint's record for the objects, and their tensors by name.

    If an object's state differs between ranks, each rank's is stored, otherwise only one. All ranks must call
    it together. Raises StateNotSaved.
    """
    rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    packed: dict[str, tuple[object, list[Tensor]]] = {}
    for name, value in objects.items():
        if value is not None:
            if not callable(getattr(value, "state_dict", None)):
                what = f"objects[{name!r}] is {in_words(value)}, which has no state_dict()"
                raise WrongArgument(what, "objects")
            tensors: list[Tensor] = []
            packed[name] = encode(value.state_dict(), tensors, name), tensors
    every = [{name: (_digest(*found), found[0]) for name, found in packed.items()}] * world
    if world > 1:
        dist.all_gather_object(every, every[rank])
    if odd := next((i for i, other in enumerate(every) if other.keys() != packed.keys()), None):
        what = f"rank {rank} saves the objects {sorted(packed)}, rank {odd} {sorted(every[odd])}"
        raise StateNotSaved(what, "objects=", "pass objects of the same names on all ranks")
    record: Json = {}
    values: dict[str, Tensor] = {}
    for name, (_, tensors) in packed.items():
        is_one = len({found[name][0] for found in every}) == 1
        record[name] = [of_rank[name][1] for of_rank in (every[:1] if is_one else every)]
        values |= {_key(name, 0 if is_one else rank, i): tensor for i, tensor in enumerate(tensors)}
    return record, values


def unpack(
    record: Json,
    objects: Mapping[str, Stateful | None],
    load: Callable[[dict[str, Tensor]], None],
    where: str,
) -> Callable[[], None]:
    """Read the state of objects with ``load``. Return a function that puts it into the objects.

    Raises BadCheckpoint if the checkpoint lacks an object, if one of its objects was not passed, or if each
    of another number of ranks stored its own state. Pass None for an object to leave it out on purpose.
    """
    _check_names(record, objects, where)
    rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    states: dict[str, object] = {}
    tensors: dict[str, Tensor] = {}
    for name, value in objects.items():
        if value is not None:
            texts = record[name]
            if len(texts) not in (1, world) and name != RANDOM:
                what = f"each of {len(texts)} ranks saved its own state of {name!r}; this run has {world}"
                raise BadCheckpoint(what, where, f"pass objects={{{name!r}: None}} and set it yourself")
            mine = rank % len(texts)
            own: dict[int, Tensor] = {}
            states[name] = decode(texts[mine], own)
            tensors |= {_key(name, mine, i): tensor for i, tensor in own.items()}
    load(tensors)

    def put() -> None:
        for name, state in states.items():
            value = objects[name]
            assert value is not None and isinstance(state, dict)
            value.load_state_dict(state)

    return put


def encode(value: object, tensors: list[Tensor], where: str) -> object:
    """Encode a value as JSON, and append its tensors to ``tensors``. Raises StateNotSaved."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Tensor) and not isinstance(value, DTensor):
        tensors.append(value.detach())
        shape, dtype = list(value.shape), str(value.dtype).removeprefix("torch.")
        return {TAG: "tensor", "v": len(tensors) - 1, "shape": shape, "dtype": dtype}
    if isinstance(value, bytes):
        return {TAG: "bytes", "v": base64.b64encode(value).decode()}
    if isinstance(value, Mapping):
        if all(isinstance(k, str) and k != TAG for k in value) and not isinstance(value, Counter):
            return {k: encode(v, tensors, f"{where}[{k!r}]") for k, v in value.items()}
        pairs = [[encode(k, tensors, where), encode(v, tensors, f"{where}[{k!r}]")] for k, v in value.items()]
        return {TAG: "counter" if isinstance(value, Counter) else "dict", "v": pairs}
    if type(value) is list or type(value).__name__ in MAKERS:
        assert isinstance(value, (list, tuple, set, frozenset))
        items = [encode(v, tensors, f"{where}[{i}]") for i, v in enumerate(value)]
        return items if isinstance(value, list) else {TAG: type(value).__name__, "v": items}
    if type(value).__module__ == "numpy":
        with suppress(TypeError):  # arrays of texts or objects cannot become tensors
            numbers = torch.as_tensor(value)
            return encode(numbers.clone() if numbers.ndim else numbers.item(), tensors, where)
    what = f"the state of {where} holds a {type(value).__name__}, which a checkpoint without pickles can't"
    hint = "let its state_dict() give numbers, texts, tensors, and lists, tuples and dicts of them"
    raise StateNotSaved(what, where, hint)


def decode(value: object, tensors: dict[int, Tensor]) -> object:
    """Decode a value of :func:`encode`. Its tensors are empty; ``tensors`` gets them, to be filled later."""
    if isinstance(value, list):
        return [decode(v, tensors) for v in value]
    if not isinstance(value, dict):
        return value
    kind = value.get(TAG)
    if kind is None:
        return {k: decode(v, tensors) for k, v in value.items()}
    held = value["v"]
    if kind == "tensor":
        tensors[held] = torch.empty(value["shape"], dtype=getattr(torch, value["dtype"]))
        return tensors[held]
    if kind == "bytes":
        return base64.b64decode(held)
    if kind in MAKERS:
        return MAKERS[kind]([decode(v, tensors) for v in held])
    pairs = {decode(k, tensors): decode(v, tensors) for k, v in held}
    return Counter(pairs) if kind == "counter" else pairs


def _check_names(record: Json, objects: Mapping[str, Stateful | None], where: str) -> None:
    """Raise BadCheckpoint unless the checkpoint has just the objects that were passed."""
    missing = [name for name, value in objects.items() if value is not None and name not in record]
    if missing:
        what = f"the checkpoint holds no state of {missing[0]!r}; it holds {sorted(record) or 'none'}"
        raise BadCheckpoint(what, where, f"pass objects={{{missing[0]!r}: None}} to go on without it")
    if left := [name for name in record if name not in objects]:
        what = f"the checkpoint holds the state of {left[0]!r}, which was not passed"
        hint = f"pass objects={{{left[0]!r}: ...}} to restore it, or {{{left[0]!r}: None}} to leave it out"
        raise BadCheckpoint(what, where, hint)


def _digest(text: object, tensors: list[Tensor]) -> str:
    digest = hashlib.sha256(json.dumps(text).encode())
    for tensor in tensors:
        held = tensor.cpu().contiguous()
        digest.update((ctypes.c_char * held.nbytes).from_address(held.data_ptr()) if held.nbytes else b"")
    return digest.hexdigest()


def _key(name: str, rank: int, number: int) -> str:
    return f"shardc/objects/{name}/{rank}/{number}"

"""Import and export of Hugging Face weights: safetensors under the names of the model's state dict."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.distributed.tensor import DTensor

from shardc.diagnostics.api import BadWeights
from shardc.runtime.arguments import in_words, path_given, whole_number
from shardc.runtime.comm.placement import whole
from shardc.runtime.errors import WrongArgument
from shardc.runtime.state import Initialiser

if TYPE_CHECKING:
    from shardc.step.compile_step import CompiledStep

SHARD_BYTES = 5 << 30
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"


class Running(Protocol):
    """Step that holds state: one from ``compile_step``, or one loaded from an artefact."""

    @property
    def rank(self) -> int: ...

    def state_dict(self) -> Mapping[str, DTensor]: ...


def export_weights(
    step: Running | CompiledStep,
    model: torch.nn.Module,
    folder: Path | str,
    *,
    shard_bytes: int = SHARD_BYTES,
) -> None:
    """Write a step's parameters and buffers in the format that ``from_pretrained`` reads.

    All ranks must call it together. The first rank writes, and gathers the tensors of one file at a time into
    its memory. The folder's index, or its only file, is written last.

    Args:
        step: A compiled step, whose values are written.
        model: The model that was compiled. Its ``state_dict`` gives the names; its ``config``, if any, is
            written beside the weights. Its values are not read.
        folder: Folder to write; created if needed. Files of the same names are replaced.
        shard_bytes: Maximum size of a file in bytes, unless one tensor is larger. Default: 5 GiB.

    Raises:
        BadWeights: The folder cannot be written.
        WrongArgument: ``step`` is not a compiled step, or ``model`` is not an ``nn.Module``.

    Example:
        >>> step = shardc.compile_step(model, optimizer, batch, loss=loss)
        >>> shardc.export_weights(step, model, "weights")
        >>> sorted(path.name for path in Path("weights").iterdir())
        ['model.safetensors']
    """
    folder, shard_bytes = path_given(folder, "folder"), whole_number(shard_bytes, "shard_bytes")
    if not (hasattr(step, "state_dict") and hasattr(step, "rank")):
        raise WrongArgument(f"step is {in_words(step)}, not a compiled step", "step")
    if not isinstance(model, torch.nn.Module):
        raise WrongArgument(f"model is {in_words(model)}, not a torch.nn.Module", "model")
    values = step.state_dict()
    names, aliases = _names_of(model, values)
    shards = list(_shards(names, values, shard_bytes))
    files = [WEIGHTS] if len(shards) == 1 else [_shard_name(i, len(shards)) for i in range(len(shards))]
    try:
        if step.rank == 0:
            folder.mkdir(parents=True, exist_ok=True)
        for file, shard in zip(files, shards, strict=True):
            tensors = {name: whole(values[name]) for name in shard}
            if step.rank == 0:
                metadata = {"format": "pt", **{a: name for a, name in aliases.items() if name in tensors}}
                _write(folder / file, tensors, metadata)
        if step.rank == 0:
            _write_texts(folder, model, shards, files, values)
    except OSError as error:
        raise BadWeights(
            folder=folder, problem=f"cannot be written ({error.strerror})", hint=_OTHER
        ) from None


def read_weights(folder: Path | str) -> Initialiser:
    """Return a reader of a Hugging Face folder's weights, for ``state=`` of ``compile_step``.

    Each rank reads only the blocks that it holds, so the model's parameters may be on the meta device.
    Buffers that the folder lacks, such as frequencies of rotary embeddings, come from the model.

    Args:
        folder: Folder with ``model.safetensors``, or with its shards and their index.

    Returns:
        A function ``(name, shape, dtype, slices) -> tensor``; None for a name that the folder lacks.

    Raises:
        BadWeights: The files are missing or damaged. The returned function raises it if the folder stores a
            tensor in another shape.

    Example:
        >>> step = shardc.compile_step(model, optimizer, batch, loss=loss)
        >>> shardc.export_weights(step, model, "weights")
        >>> weights = shardc.read_weights("weights")
        >>> step = shardc.compile_step(model, optimizer, batch, loss=loss, state=weights)
    """
    folder = path_given(folder, "folder")
    places: dict[str, tuple[Path, str]] = {}
    for path in _files_of(folder):
        with _opened(path) as file:
            held = set(file.keys())
            places |= {name: (path, name) for name in held}
            for alias, name in (file.metadata() or {}).items():
                if name in held:
                    places[alias] = path, name

    def block(
        name: str, shape: tuple[int, ...], dtype: torch.dtype, slices: tuple[slice, ...]
    ) -> Tensor | None:
        if name not in places:
            return None
        path, stored = places[name]
        with _opened(path) as file:
            found = file.get_slice(stored)
            if tuple(found.get_shape()) != shape:
                problem = f"has {stored} of shape {found.get_shape()}, not {list(shape)}"
                raise BadWeights(folder=path, problem=problem, hint="read the folder of the model compiled")
            return (found[slices] if shape else file.get_tensor(stored)).to(dtype)

    return block


_WHOLE = (
    "pass the model that was compiled; a rank of a pipeline holds its stage alone: save a checkpoint, and "
    "read it with torch.distributed.checkpoint"
)
_OTHER = "name another folder, or make room"


def _names_of(model: torch.nn.Module, values: Mapping[str, Tensor]) -> tuple[list[str], dict[str, str]]:
    """Return the state dict's names, one for each tensor, and a map of a tied tensor's other names."""
    first: dict[int, str] = {}
    names, aliases = [], {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        kept = first.setdefault(id(tensor), name)
        if kept != name:
            aliases[name] = kept
        elif name not in values:
            raise BadWeights(folder="the step", problem=f"does not hold {name}", hint=_WHOLE)
        else:
            names.append(name)
    return names, aliases


def _shards(names: list[str], values: Mapping[str, Tensor], limit_bytes: int) -> Iterator[list[str]]:
    shard, held = [], 0
    for name in names:
        size = values[name].numel() * values[name].element_size()
        if shard and held + size > limit_bytes:
            yield shard
            shard, held = [], 0
        shard.append(name)
        held += size
    yield shard


def _shard_name(number: int, count: int) -> str:
    return f"model-{number + 1:05}-of-{count:05}.safetensors"


def _write(path: Path, whole: Mapping[str, Tensor], metadata: dict[str, str]) -> None:
    beside = path.with_suffix(".writing")
    save_file({name: tensor.detach().cpu().contiguous() for name, tensor in whole.items()}, beside, metadata)
    os.replace(beside, path)


def _write_texts(
    folder: Path,
    model: torch.nn.Module,
    shards: list[list[str]],
    files: list[str],
    values: Mapping[str, Tensor],
) -> None:
    write_config = getattr(getattr(model, "config", None), "to_json_file", None)
    if write_config is not None:
        write_config(str(folder / "config.json"))
    if len(files) > 1:
        size = sum(values[n].numel() * values[n].element_size() for shard in shards for n in shard)
        weights = {name: file for file, shard in zip(files, shards, strict=True) for name in shard}
        text = json.dumps({"metadata": {"total_size": size}, "weight_map": weights}, indent=2)
        beside = folder / f"{INDEX}.writing"
        beside.write_text(text)
        os.replace(beside, folder / INDEX)


def _files_of(folder: Path) -> list[Path]:
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    hint = "name a folder with model.safetensors, or with its shards and their index"
    try:
        listed = json.loads((folder / INDEX).read_text())["weight_map"].values()
        found = [folder / name for name in sorted(set(listed))]
    except FileNotFoundError:
        raise BadWeights(folder=folder, problem="holds no weights in safetensors", hint=hint) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadWeights(folder=folder / INDEX, problem=f"cannot be read ({error})", hint=hint) from None
    for path in found:
        if path.parent != folder or not path.is_file():
            raise BadWeights(folder=path, problem="is listed in the index but missing", hint=hint)
    return found


def _opened(path: Path) -> safe_open:
    try:
        return safe_open(path, "pt")
    except (OSError, SafetensorError) as error:
        hint = "copy the folder again"
        raise BadWeights(folder=path, problem=f"is damaged ({error})", hint=hint) from None

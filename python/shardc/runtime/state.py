"""Parameters, optimizer state and buffers: one local tensor each on every rank, presented as DTensors.

A DTensor is a view of the local tensor without its padding. If ranks hold other blocks than a DTensor would,
such as whole heads or parts of queries, keys and values, the DTensor is a copy in DTensor's layout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from .arguments import in_words, mapping_given
from .check import STATE_ROLES
from .comm.connect import Place, ensure_group
from .comm.layout import Leaf, chunked_shape, with_padding
from .comm.mesh import Axis, Mesh, ways
from .comm.placement import DeviceMeshes, whole
from .comm.wholes import first_holders, sent_to_all
from .errors import ShardingMismatch, StateMismatch, WrongArgument
from .tensor_file import TensorFile
from .torch_private import show

Initialiser = Callable[[str, tuple[int, ...], torch.dtype, tuple[slice, ...]], Tensor | None]
"""Function ``(name, global shape, dtype, slice of each dim) -> block``. If it returns None, the artefact's
value is used. It is called once for this rank's block, or for each part of an interleaved block.
"""
Leaves = Iterable[Leaf]
Tensors = Mapping[str, Tensor]
Source = Tensors | Initialiser | None
Shared = tuple["State", str]
"""Another state, and the name of a tensor there."""


class State:
    """State of one rank by name. Tensor objects stay; steps replace their memory. Padding is zero."""

    def __init__(
        self, leaves: Leaves, mesh: Mesh, place: Place, every: Leaves = (), apart: Axis | None = None
    ) -> None:
        """Create the state of a rank. ``every``: leaves of all ranks, if they differ along ``apart``."""
        self.leaves = {leaf.name: leaf for leaf in leaves if leaf.role in STATE_ROLES}
        self._every = {leaf.name: leaf for leaf in every if leaf.role in STATE_ROLES} or self.leaves
        self._apart = apart
        self.local: dict[str, Tensor] = {}
        self._mesh, self._place = mesh, place
        self._meshes: DeviceMeshes | None = None
        self._dtensors: dict[str, DTensor] = {}
        self._narrowed: list[tuple[Leaf, DTensor]] = []
        self._shared: Mapping[str, Shared] = {}
        for leaf in self.leaves.values():
            _check_divides(leaf, mesh)

    def initialise(
        self,
        source: Source,
        file: TensorFile | None,
        tied: Mapping[str, str],
        shared: Mapping[str, Shared] | None = None,
    ) -> None:
        """Fill every tensor from ``source``, or from the artefact's file, or with its fill value.

        A mapping must have all parameters, as whole tensors or DTensors, under any name of a tied parameter.
        ``shared``: tensors of another state, which this state uses, too. Raises StateMismatch, and
        ShardingMismatch if another state shards one differently.
        """
        if not (source is None or isinstance(source, Mapping) or callable(source)):
            raise WrongArgument(f"state is {in_words(source)}, not a state dict or a function", "state")
        self._shared = shared or {}
        for name, (other, its_name) in self._shared.items():
            self._share(name, other, its_name)
        if isinstance(source, Mapping):
            own = {n: leaf for n, leaf in self._every.items() if n not in self._shared}
            source = _from_mapping({n: v for n, v in source.items() if n not in self._shared}, own, tied)
        for name, leaf in self.leaves.items():
            if name not in self.local:
                self.local[name] = self._initial(leaf, source, file)
        if self._mesh.world_size > 1:
            self._make_meshes()  # needs all ranks, but later a user may ask for DTensors on one rank only

    @property
    def is_whole(self) -> bool:
        """True if this rank is the only one, and so holds all tensors whole."""
        return self._mesh.world_size == 1

    @property
    def every(self) -> Mapping[str, Leaf]:
        """Leaves of all ranks. With a pipeline these are more than this rank's own."""
        return self._every

    def view(self, name: str) -> DTensor | None:
        """Return a DTensor over this rank's memory; None if it would be a copy, or is on other ranks."""
        leaf = self.leaves.get(name)
        if leaf is None or not leaf.is_chunked(self._mesh):
            return None
        if name not in self._dtensors:
            self._dtensors[name] = self._new_view(leaf)
            if leaf.padded or self.local[name].requires_grad:
                self._narrowed.append((leaf, self._dtensors[name]))
        return self._dtensors[name]

    def dtensors(self, *roles: str) -> dict[str, DTensor]:
        """Return the state of these roles (default: all) as DTensors by name.

        All ranks must call it together if any DTensor is a copy.
        """
        meshes = self._meshes or self._make_meshes()
        for name, leaf in self.leaves.items():
            if self.view(name) is None:
                if name in self._dtensors:
                    local_of(self._dtensors[name]).data = self._copy(leaf, meshes)
                else:
                    self._dtensors[name] = self._dtensor(leaf, self._copy(leaf, meshes), meshes)
        return {n: self._dtensors[n] for n, leaf in self.leaves.items() if not roles or leaf.role in roles}

    def refresh(self) -> None:
        """Update DTensors that are views of padded blocks after a step."""
        for leaf, shown in self._narrowed:
            local_of(shown).data = self._held(leaf)

    def take_copies(self) -> None:
        """Store values that were written to DTensors that are copies. All ranks must call it together."""
        for name, leaf in self._copied():
            self.local[name].data = self._stored(leaf, self._own(leaf, whole(self._dtensors[name])))

    def _copied(self) -> list[tuple[str, Leaf]]:
        return [(n, leaf) for n, leaf in self.leaves.items() if not leaf.is_chunked(self._mesh)]

    def _held(self, leaf: Leaf) -> Tensor:
        """Return a view of a rank's block without its padding."""
        held = self.local[leaf.name].detach()
        return held[tuple(map(slice, leaf.held_shape(self._mesh, self._place.rank)))]

    def _share(self, name: str, other: State, its_name: str) -> None:
        """Use the tensor of ``other``. Raises ShardingMismatch."""
        leaf, its_leaf = self._every[name], other.every[its_name]
        apart = (name in self.leaves) != (its_name in other.leaves)
        if apart or not leaf.lies_like(self._mesh, its_leaf, other._mesh):
            found, wanted = leaf.placed(self._mesh), its_leaf.placed(other._mesh)
            what = f"{leaf.role} {name!r} is {wanted} in an earlier step, but {found} in this one"
            hint = "compile both steps with the same sharding of it: plan={pattern: sharding} for one or both"
            raise ShardingMismatch(f"{what}{', on other ranks' if apart else ''}", name, hint)
        if name in self.leaves:
            self.local[name] = other.local[its_name]

    def _copy(self, leaf: Leaf, meshes: DeviceMeshes) -> Tensor:
        """Return a copy of a rank's block in DTensor's layout."""
        full = whole(DTensor.from_local(self.local[leaf.name], *meshes.of(leaf), run_check=False))
        if leaf.interleaved is not None:
            full = leaf.interleaved.restored(full)
        shown = replace(leaf, padded=chunked_shape(leaf, self._mesh), interleaved=None)
        return self._own(shown, full).contiguous()

    def _new_view(self, leaf: Leaf) -> DTensor:
        if leaf.name in self._shared:
            other, its_name = self._shared[leaf.name]
            found = other.view(its_name)
            assert found is not None
            return found
        local = self.local[leaf.name]
        local = self._held(leaf) if leaf.padded or local.requires_grad else local
        return self._dtensor(leaf, local, self._meshes or self._make_meshes())

    def _dtensor(self, leaf: Leaf, local: Tensor, meshes: DeviceMeshes) -> DTensor:
        stride = torch.empty(leaf.shape, device="meta").stride()
        shape, placed = torch.Size(leaf.shape), meshes.of(leaf)
        made = DTensor.from_local(local, *placed, run_check=False, shape=shape, stride=stride)
        # from_local wraps a view. The tensor itself must be there, so that the user sees later steps' values.
        show(local, made)
        return made

    def _own(self, leaf: Leaf, whole: Tensor) -> Tensor:
        return _joined(leaf, [whole[block] for block in leaf.blocks(self._mesh, self._place.rank)])

    def _stored(self, leaf: Leaf, held: Tensor) -> Tensor:
        return with_padding(held, leaf.local_shape(self._mesh) if leaf.padded else ())

    def assign(self, values: Tensors, tied: Mapping[str, str]) -> None:
        """Load a state dict of whole tensors or DTensors. It must have all parameters."""
        blocks = _from_mapping(values, self._every, tied)
        for name, leaf in self.leaves.items():
            found = self._block(leaf, blocks)
            if found is not None:
                self.local[name].data = found
        self.refresh()

    def take(self, other: State, *roles: str) -> None:
        """Copy tensors of these roles from another state, one at a time, through memory.

        Plan, mesh and pipeline may differ. All ranks must call it together. Raises StateMismatch.
        """
        wanted = [n for n, leaf in other.every.items() if leaf.role in roles and n in self._every]
        shapes = {name: torch.empty(other.every[name].shape, device="meta") for name in wanted}
        _from_mapping(shapes, self._every, {})
        for name, value in other.wholes(wanted):
            if name in self.leaves:
                block = self._block(self.leaves[name], lambda *asked, value=value: value[asked[-1]])
                assert block is not None
                self.local[name].data = block
        self.refresh()

    def wholes(self, names: Sequence[str]) -> Iterator[tuple[str, Tensor]]:
        """Yield each of these tensors whole, on all ranks. All ranks must iterate together."""
        shown = self.dtensors()
        sources = first_holders([name in shown for name in names]) if self._apart else []
        for number, name in enumerate(names):
            leaf, own = self._every[name], shown.get(name)
            device = self._place.device
            value = torch.empty(leaf.shape, dtype=leaf.dtype, device=device) if own is None else whole(own)
            yield name, sent_to_all(value, sources[number]) if sources else value

    def _make_meshes(self) -> DeviceMeshes:
        ensure_group(self._place.timeout)
        self._meshes = DeviceMeshes(self._mesh, self._place.device.type, self._every.values(), self._apart)
        return self._meshes

    def _initial(self, leaf: Leaf, source: Initialiser | None, file: TensorFile | None) -> Tensor:
        found = self._block(leaf, source) if source else None
        if found is not None:
            return found
        if file is not None and leaf.name in file.names:
            _check_shape(leaf, file.shape(leaf.name), str(file.path))
            blocks = leaf.blocks(self._mesh, self._place.rank)
            block = _joined(leaf, [file.read(leaf.name, block) for block in blocks])
            return self._stored(leaf, block.to(self._place.device, leaf.dtype))
        if leaf.fill is not None:
            held = leaf.held_shape(self._mesh, self._place.rank)
            filled = torch.full(held, leaf.fill, dtype=leaf.dtype, device=self._place.device)
            return self._stored(leaf, filled)
        name = f"{leaf.role} {leaf.name!r} ({leaf.describe()})"
        what = f"{name} has no initial value: the artefact carries none"
        hint = "pass `state=`: a state dict, or a function (name, shape, dtype, slices) -> tensor"
        raise StateMismatch(what, leaf.name, hint)

    def _block(self, leaf: Leaf, source: Initialiser) -> Tensor | None:
        parts = []
        for block in leaf.blocks(self._mesh, self._place.rank):
            found = source(leaf.name, leaf.shape, leaf.dtype, block)
            if found is None:
                return None
            held = tuple(part.stop - part.start for part in block)
            if tuple(found.shape) != held:
                what = f"the initialiser gave {list(found.shape)} for a block of {list(held)}"
                hint = f"return the slice that it is asked for, of a tensor of shape {list(leaf.shape)}"
                raise StateMismatch(what, leaf.name, hint)
            parts.append(found.detach())
        # A copy, so that later changes of the caller's tensor have no effect.
        whole = _joined(leaf, parts)
        own = whole.to(self._place.device, leaf.dtype, copy=True, memory_format=torch.contiguous_format)
        return self._stored(leaf, own)


def _joined(leaf: Leaf, blocks: list[Tensor]) -> Tensor:
    return blocks[0] if leaf.interleaved is None else torch.cat(blocks, leaf.interleaved.dim)


def _from_mapping(values: Tensors, leaves: Mapping[str, Leaf], tied: Mapping[str, str]) -> Initialiser:
    """Return an initialiser from a state dict. Raises StateMismatch for wrong names and shapes."""
    for name, value in mapping_given(values, "the state dict", "tensors").items():
        if not isinstance(value, Tensor):
            raise StateMismatch(f"the state dict has {in_words(value)} for {name!r}, not a tensor", "state")
    named = {tied.get(name, name): value for name, value in values.items()}
    named.update({name: value for name, value in values.items() if name in leaves})
    missing = [n for n, leaf in leaves.items() if leaf.role == "param" and n not in named]
    unknown = [n for n in named if n not in leaves]
    if missing or unknown:
        found = [(what, names) for what, names in (("lacks", missing), ("has unknown", unknown)) if names]
        parts = [f"{w} {', '.join(map(repr, n[:5]))}{' ...' if len(n) > 5 else ''}" for w, n in found]
        hint = "pass the state dict of the model that was compiled"
        raise StateMismatch(f"the state dict {' and '.join(parts)}", "state", hint)
    for name, value in named.items():
        _check_shape(leaves[name], tuple(value.shape), "state")

    last: dict[str, Tensor | None] = {}

    def block(name: str, _: tuple[int, ...], dtype: torch.dtype, slices: tuple[slice, ...]) -> Tensor | None:
        if name not in last:  # a rank may ask for several blocks, but all ranks gather a tensor once
            value = named.get(name)
            last.clear()
            last[name] = whole(value) if isinstance(value, DTensor) else value
        full = last[name]
        return None if full is None else full[slices]

    return block


def _check_shape(leaf: Leaf, shape: tuple[int, ...], where: str) -> None:
    if shape != leaf.shape:
        own = f"{leaf.role} {leaf.name!r} has shape {list(shape)}"
        what = f"{own}; the program was compiled for {list(leaf.shape)}"
        raise StateMismatch(what, where, "use the state of the model that was compiled, or compile this one")


def _check_divides(leaf: Leaf, mesh: Mesh) -> None:
    for d, (size, axes) in enumerate(zip(leaf.padded or leaf.shape, leaf.space_dims(mesh), strict=True)):
        if size % ways(axes):
            dim = f"dim {d} of {leaf.role} {leaf.name!r} has size {size}"
            what = f"{dim}, which {ways(axes)} ranks do not divide"
            raise StateMismatch(what, leaf.name, "compile with a sharding that divides it")


def local_of(tensor: DTensor) -> Tensor:
    """Return the tensor object that a DTensor holds on this rank."""
    with torch.no_grad():
        return tensor.to_local()

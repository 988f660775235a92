"""``TrainStep``: an artefact's program with its state, called once for each training step."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from math import prod
from pathlib import Path
from typing import NoReturn, Protocol, SupportsIndex

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from .arguments import mapping_given, path_given, whole_number
from .batch import LOCAL_HINT, check_leaf, leaves_of
from .check import STATE_ROLES, Json, check_files, read_manifest
from .checkpoint.folder import holds_checkpoint
from .checkpoint.load import Checkpoint
from .checkpoint.objects import RANDOM, Generators, Stateful, pack, unpack
from .checkpoint.save import Saver, Saving
from .comm.collectives import Rank
from .comm.connect import TIMEOUT_S, Device, connect
from .comm.direct import DirectGroup
from .comm.flights import Flights
from .comm.groups import Group, Groups
from .comm.host import HostGroup
from .comm.layout import Leaf, cut, placed, with_padding
from .comm.mesh import Mesh
from .comm.symmetric import taken, use_symmetric_memory
from .comm.watch import Watch
from .cuda_graph import GraphedStep
from .environment import LOCAL_RANK, LOCAL_WORLD_SIZE, WORLD_SIZE
from .errors import (
    BadSeed,
    BatchMismatch,
    CallsNotSeen,
    GraphNotCaptured,
    NothingToTrace,
    StepNotCopied,
)
from .hyper import Hyperparameters
from .memory import check_memory, told

# These imports define the ops that programs call.
from .operators import (  # noqa: F401
    attention,
    causal_convolution,
    circular_pad,
    convolution,
    copies,
    dispatch,
    experts,
    flat_index,
    folded_attention,
    padded_convolution,
    padded_max_pool,
    random,
    ring_attention,
    sampling,
)
from .operators.registered import check_operators
from .operators.room import Room
from .outputs import Outputs, Result
from .program import Program, check_device, device_of, library_of, part_of
from .report import logs, progress
from .report.calls import AROUND, Call, Calls
from .report.live_bytes import LiveBytes
from .report.timeline import recorded, write_timeline
from .same_batch import SameBatch
from .state import Shared, Source, State
from .tensor_file import TensorFile

MOST_SEED = 2**62
CALLS_HINT = "run one step first, on a CPU and not as a CUDA graph"
COPY_HINT = "make another step of a copy of the model, or write one with save_checkpoint() and load it there"


class TrainStep:
    """Step of one rank. All ranks must construct, call, save and load it together, with equal arguments.

    ``seed``: base of the random numbers. Step ``i``, counted by ``steps_done``, uses ``seed + i``.
    """

    def __init__(
        self,
        program: Program,
        manifest: Json,
        constants: Mapping[str, Tensor] | TensorFile | None = None,
        *,
        file: TensorFile | None = None,
        state: Source = None,
        device: Device = None,
        timeout_s: float = TIMEOUT_S,
        shared: Mapping[str, Shared] | None = None,
    ) -> None:
        """Create the step. ``shared``: tensors of an earlier step that this one uses, by name."""
        logs.start()
        self._mesh = Mesh.read(manifest["mesh"])
        self._place = connect(self._mesh, device_of(manifest) if device is None else device, timeout_s)
        check_device(manifest, self._place.device, self._place.rank)
        self._manifest = manifest
        self._planned_bytes: int = manifest.get("peak_bytes", 0)
        check_memory(self._planned_bytes, self._place.device, self._place.rank)
        every = [Leaf.read(entry) for entry in manifest["arguments"]]
        self._inputs = {leaf.name: leaf for leaf in every if leaf.role == "input"}
        part = part_of(manifest["pipeline"], every, self._mesh, self._place.rank)
        self._program, self._part = program, part
        self._arguments, self._function = part.arguments, program.steps[part.number]
        on_cpu = self._place.device.type == "cpu"
        group = Group if self._place.nccl else DirectGroup if on_cpu else HostGroup
        groups = Groups(self._mesh, self._place.rank, program.groups, self._place.timeout, group)
        self.collectives = use_symmetric_memory(groups, self._place.device, self._place.nccl)
        """Line for each group of ranks on how its collectives run."""
        self._groups = groups
        flights = Flights() if self._place.nccl else None
        self._rank = Rank(self._mesh, self._place.rank, self._place.device, groups, flights)
        self._watch = Watch(self._place.rank, self._mesh.world_size, flights, timeout_s)
        self.hyper = Hyperparameters(manifest["hyperparameters"], manifest["baked"])
        self.seed = manifest["seed"]
        self.steps_done = 0
        self._is_first = True
        self._saver = Saver()
        self._same_batch = SameBatch(self._mesh.world_size)
        self._outputs = Outputs(manifest.get("results", []), self._mesh, self._place)
        self._room: Room[TrainStep] = Room(manifest.get("results", []))
        self._graphed: GraphedStep | None = None
        self._check: Callable[[], TrainStep | None] | None = None
        self._others: OtherPrograms | None = None
        held = [leaf for leaf in self._arguments if leaf.role == "constant"]
        self._constants = {leaf.name: self._constant(leaf, constants) for leaf in held}
        self.state = State(self._arguments, self._mesh, self._place, every, part.axis)
        self._same_batch.start_from(state, self.state.every, manifest["tied"])
        self.state.initialise(state, file, manifest["tied"], shared)

    @classmethod
    def load(
        cls, folder: Path | str, device: Device = None, state: Source = None, timeout_s: float = TIMEOUT_S
    ) -> TrainStep:
        """Load an artefact's step. ``state``: initial values, as a dict or a function that returns blocks.

        Raises BadArtefact, BadLibrary, MissingOperator, WorldMismatch or StateMismatch.
        """
        folder = path_given(folder, "folder")
        manifest = read_manifest(folder)
        check_files(folder, manifest, *_share(Mesh.read(manifest["mesh"])))
        check_operators(manifest)
        stored = folder / "state.safetensors"
        return cls(
            Program.load(folder / "program.py", library_of(folder, manifest)),
            manifest,
            TensorFile(folder / "constants.safetensors"),
            file=TensorFile(stored) if stored.exists() else None,
            state=state,
            device=device,
            timeout_s=timeout_s,
        )

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise StepNotCopied("a step cannot be copied or pickled", hint=COPY_HINT)

    @property
    def seed(self) -> int:
        """Base of the random numbers. Setting it raises BadSeed for an invalid value."""
        return self._seed

    @seed.setter
    def seed(self, value: int) -> None:
        if not isinstance(value, int) or isinstance(value, bool) or abs(value) > MOST_SEED:
            raise BadSeed(f"the seed is {value!r:.80}, not a whole number from -2**62 to 2**62", "seed")
        self._seed = value

    @property
    def rank(self) -> int:
        return self._place.rank

    @property
    def device(self) -> torch.device:
        return self._place.device

    @property
    def given_bytes(self) -> int:
        """Bytes of this rank's arguments: state, constants, its part of the batch."""
        shapes = ((leaf.local_shape(self._mesh), leaf.dtype) for leaf in self._arguments)
        return sum(prod(shape) * dtype.itemsize for shape, dtype in shapes)

    def symmetric_collectives(self) -> dict[str, int]:
        """Count this rank's collectives through symmetric memory so far, by name."""
        return dict(taken(self._groups))

    def __call__(self, batch: object) -> Result:
        return self.step(batch)

    def step(self, batch: object) -> Result:
        """Run one step on a global batch, of which each rank takes its own part.

        Returns the 0-d loss, or for a step with outputs the loss and the outputs by name. If ranks pass
        different batches, all of them raise BatchMismatch, and nothing changes. If they start from different
        weights, the first step raises WeightsMismatch.
        """
        with self._watch.guard(self.steps_done):
            return self._step_batch(batch)

    def step_leaves(self, values: Mapping[str, Tensor]) -> Result:
        """Run ``step`` on a global batch given as tensors by leaf name."""
        mapping_given(values, "values", "tensors")
        with self._watch.guard(self.steps_done):
            return self._step_whole(values)

    def leaves(self, batch: object) -> dict[str, Tensor]:
        """Return the tensors of a global batch by leaf name. Raises BatchMismatch."""
        return leaves_of(batch, self._manifest["batch"])

    def trace(self, batch: object, path: Path | str) -> Result:
        """Run ``step``; rank 0 writes a timeline of all ranks to ``path``, as a Chrome trace.

        It has the user's lines, collectives, memory, and a pipeline's actions. Raises NothingToTrace.
        """
        batch = batch if self._others is None else self._others.prepared(batch)
        return self.trace_leaves(leaves_of(batch, self._manifest["batch"]), path)

    def trace_leaves(self, values: Mapping[str, Tensor], path: Path | str) -> Result:
        """Run ``trace`` on a global batch given as tensors by leaf name."""
        path = path_given(path, "path")
        mapping_given(values, "values", "tensors")
        self.check_traceable()
        plain = self._function
        with (
            self._watch.guard(self.steps_done),
            recorded(self._program, self._part, self._rank) as (recorder, self._function),
        ):
            try:
                loss = self._step_whole(values)
            finally:
                self._function = plain
            write_timeline(recorder, self._part, self._mesh, self._place, path)
            return loss

    def calls_leaves(self, values: Mapping[str, Tensor]) -> tuple[Result, Calls]:
        """Run ``step_leaves``; return its result, and each call of this rank's program with its seconds.

        Raises CallsNotSeen at the first step, on a GPU, and for a CUDA graph.
        """
        calls = Calls()
        start_s = time.perf_counter()
        made = self._noted(values, calls)
        rest_s = time.perf_counter() - start_s - sum(call.seconds for call in calls.found)
        calls.found.append(Call(AROUND, rest_s))
        return made, calls

    def live_leaves(self, values: Mapping[str, Tensor], live: LiveBytes) -> Result:
        """Run ``step_leaves``, and measure its memory with ``live``, which must have been started a step ago.

        Raises CallsNotSeen like ``calls_leaves``.
        """
        live.sample()
        made = self._noted(values, Calls(seen=live.sample))
        live.stop()
        return made

    def _noted(self, values: Mapping[str, Tensor], calls: Calls) -> Result:
        if self._is_first or self._graphed is not None or self._place.device.type != "cpu":
            raise CallsNotSeen(
                "calls can be recorded only on a CPU, from the second step on", "the step", CALLS_HINT
            )
        plain = self._rank, self._function
        self._rank, self._function = calls.rank(self._rank), calls.program(self._function)
        try:
            with calls.of(self._program.names):
                return self.step_leaves(values)
        finally:
            self._rank, self._function = plain

    def check_traceable(self) -> None:
        """Raise NothingToTrace if ``trace`` would."""
        if self._graphed is not None:
            hint = "trace a step without use_cuda_graph()"
            raise NothingToTrace(
                "a CUDA graph is a single launch, whose parts are not visible", "the step", hint
            )

    def local(self, batch: object) -> Result:
        """Run one step on this rank's own part of a batch. The batch must have the example's sizes."""
        with self._watch.guard(self.steps_done):
            values = leaves_of(batch, self._manifest["batch"])
            for leaf in self._inputs.values():
                own = tuple(s.stop - s.start for s in leaf.read_by(self._mesh, self._place.rank))
                check_leaf(values, leaf, own, LOCAL_HINT)
            self._same_batch.compare_start(self.steps_done)
            return self._advance({n: self._placed(values[n], leaf) for n, leaf in self._inputs.items()})

    def _placed(self, value: Tensor, leaf: Leaf) -> Tensor:
        """Return a rank's own part of an input as the block that the program takes."""
        place = leaf.read_by(self._mesh, self._place.rank)
        return placed(value, place, leaf.local_shape(self._mesh))

    def use_cuda_graph(self) -> None:
        """Capture the step as a CUDA graph after two more steps, and launch the graph from then on.

        A step that cannot be captured runs without a graph, and a warning says why. An index out of range is
        reported one step late. Raises GraphNotCaptured on a CPU.
        """
        if self._place.device.type != "cuda":
            where = f"rank {self.rank} is on {self._place.device}"
            raise GraphNotCaptured(f"CUDA graphs are for GPUs, and {where}")
        if self._outputs:
            raise GraphNotCaptured("a CUDA graph of a step returns its loss alone, and this one has outputs")
        if self._room:
            raise GraphNotCaptured("a CUDA graph cannot run again, and this step may: on_overflow='rerun'")
        kept = [leaf.role in STATE_ROLES or leaf.role == "constant" for leaf in self._arguments]
        self._graphed = GraphedStep(self._function, self._rank, kept)
        if self._manifest["pipeline"]:
            self._graphed.refuse("it is a pipeline, whose ranks send to each other")
        elif self._mesh.world_size > 1 and not self._place.nccl:
            self._graphed.refuse("its collectives go over Gloo, which works on the host")

    def bind(self, optimizer: Optimizer) -> None:
        """Read hyperparameters from this optimizer before each step, so that torch's schedulers have effect.

        If no optimizer was bound at ``load_checkpoint``, the next bound one gets the checkpoint's values.
        """
        self.hyper.bind(optimizer)

    def check_before_steps(self, check: Callable[[], TrainStep | None]) -> None:
        """Call ``check`` before each step. If it raises, nothing changes.

        If it returns a step over the same state, that one runs instead of this one.
        """
        self._check = check

    def run_again_by(self, roomy: Callable[[], TrainStep]) -> None:
        """Repeat a step whose rows lack room at their experts with the step of ``roomy``."""
        self._room.roomy = roomy

    def have_others(self, others: OtherPrograms) -> None:
        """Run global batches of other shapes with the programs of ``others``."""
        self._others = others

    def parameters(self) -> Iterator[DTensor]:
        """Return the parameters of which this rank has a part: with a pipeline, those of its stages."""
        return iter(self.state.dtensors("param").values())

    def named_parameters(self) -> Iterator[tuple[str, DTensor]]:
        return iter(self.state.dtensors("param").items())

    def state_dict(self) -> dict[str, DTensor]:
        """Return parameters, optimizer state (``<parameter>/<key>``) and buffers, as DTensors.

        They show the values of later steps, too.
        """
        return self.state.dtensors()

    def load_state_dict(self, values: Mapping[str, Tensor]) -> None:
        """Load all parameters, and any other state, from whole tensors or DTensors. Raises StateMismatch."""
        self._same_batch.start_from(values, self.state.every, self._manifest["tied"])
        self.state.assign(values, self._manifest["tied"])

    @progress.work("saving a checkpoint")
    def save_checkpoint(
        self,
        folder: Path | str,
        *,
        objects: Mapping[str, Stateful | None] | None = None,
        keep_last: int | None = None,
        wait: bool = True,
    ) -> Saving:
        """Write everything needed to resume training, with torch.distributed.checkpoint.

        It contains the state, the number of steps, the seed, the hyperparameters, the settings that
        schedulers keep in the bound optimizer's groups, and the random generators of this process.

        Args:
            folder: A new or empty folder, or that of an earlier checkpoint, which is replaced at the end.
            objects: Other objects with a ``state_dict``, by name: the scheduler, a stateful data loader, an
                average of the weights. If an object's state differs between ranks, each rank's is stored.
            keep_last: Write a checkpoint of a series, ``folder/step-<steps done>``, and keep that many.
            wait: False writes in the background, from a copy in host memory. The next save, and ``wait()`` of
                the returned object, wait for its end.

        Raises:
            CheckpointNotSaved: A rank failed, or the save before failed.
            StateNotSaved: The state of an object cannot be stored.
        """
        folder = path_given(folder, "folder")
        if objects is not None:
            mapping_given(objects, "objects", "objects with a state_dict()")
        if keep_last is not None:
            whole_number(keep_last, "keep_last")
        with self._watch.guard(self.steps_done):
            if not objects:
                self.hyper.warn_of_scheduler()
            record, tensors = pack({**(objects or {}), RANDOM: Generators()})
            numbers = {"optimizer": self.hyper.packed(), "objects": record}
            values = {**self.state.dtensors(), **self._progress(), **tensors}
            return self._saver.save(folder, values, numbers, self.steps_done, keep_last, wait)

    @progress.work("loading a checkpoint")
    def load_checkpoint(
        self,
        folder: Path | str,
        *,
        objects: Mapping[str, Stateful | None] | None = None,
        missing_ok: bool = False,
    ) -> None:
        """Load a checkpoint that ``save_checkpoint`` wrote on this or another mesh; of a series, the latest.

        Hyperparameters are written into the bound optimizer's ``param_groups``, as by
        ``optimizer.load_state_dict``. Create schedulers before this call, because a new scheduler sets its
        optimizer's learning rate. Nothing in a checkpoint is executed.

        Args:
            folder: A checkpoint, or a series of them.
            objects: The objects that were passed to ``save_checkpoint``, newly created. None for an object
                leaves it out.
            missing_ok: Do nothing if there is no checkpoint yet, for scripts that are restarted
            automatically.

        Raises:
            BadCheckpoint: There is no checkpoint, a file is damaged, or other objects were saved.
            StateMismatch: The checkpoint is of another program.
            HyperparameterMismatch: It was trained with another value of a constant of this program.
        """
        folder = path_given(folder, "folder")
        if objects is not None:
            mapping_given(objects, "objects", "objects with a state_dict()")
        if missing_ok and not holds_checkpoint(folder):
            return
        numbers = self._progress()
        self._same_batch.start_from(None, (), {})
        with self._watch.guard(self.steps_done):
            found = Checkpoint(folder)
            self.hyper.check_packed(found.record.get("optimizer", []))
            values = {**self.state.dtensors(), **numbers}
            wanted = dict(objects or {})
            if RANDOM in (held := found.record.get("objects", {})):
                wanted[RANDOM] = Generators()
            put = unpack(held, wanted, lambda tensors: found.load({**values, **tensors}), str(found.folder))
            self.state.take_copies()
        self.steps_done, self.seed = int(numbers["shardc/steps_done"]), int(numbers["shardc/seed"])
        put()
        hyper = {name: float(numbers[f"shardc/{name}"]) for name in self.hyper}
        self.hyper.restore(hyper, found.record.get("optimizer", []))

    def _progress(self) -> dict[str, Tensor]:
        """Return the numbers that a checkpoint stores besides the state."""
        numbers = {"steps_done": self.steps_done, "seed": self.seed}
        found = {f"shardc/{name}": torch.tensor(value) for name, value in numbers.items()}
        return found | {f"shardc/{n}": torch.tensor(v, dtype=torch.float64) for n, v in self.hyper.items()}

    def _constant(self, leaf: Leaf, constants: Mapping[str, Tensor] | TensorFile | None) -> Tensor:
        assert constants is not None
        whole = constants.mapped(leaf.name) if isinstance(constants, TensorFile) else constants[leaf.name]
        whole = with_padding(whole, leaf.padded)
        return cut(whole, leaf.dims, self._mesh, self._place.rank).to(self._place.device, copy=True)

    def _step_batch(self, batch: object) -> Result:
        with self._same_batch.or_refused():
            values, program = self._found(batch)
        self._same_batch.compare(values, self.steps_done)
        other = program()
        parts = other._own_parts(other._fitting(values))
        return self._advance(parts) if other is self else self._advance_by(other, parts)

    def _found(self, batch: object) -> tuple[Mapping[str, Tensor], Callable[[], TrainStep]]:
        """Return a batch's tensors, and a function that returns the step for them. Raises BatchMismatch."""
        others = self._others
        batch = batch if others is None else others.prepared(batch)
        try:
            return self._fitting(leaves_of(batch, self._manifest["batch"])), lambda: self
        except BatchMismatch as error:
            if others is None:
                raise
            mismatch = error
        return others.find(batch, mismatch)

    def _fitting(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the program's inputs among a batch's tensors. Raises BatchMismatch."""
        for leaf in self._inputs.values():
            check_leaf(values, leaf, leaf.shape)
        return {name: values[name] for name in self._inputs}

    def _step_whole(self, values: Mapping[str, Tensor]) -> Result:
        with self._same_batch.or_refused():
            values = self._fitting(values)
        self._same_batch.compare(values, self.steps_done)
        return self._advance(self._own_parts(values))

    def _own_parts(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return this rank's part of each tensor of a global batch."""
        rank, mesh = self._place.rank, self._mesh
        padded = {n: with_padding(values[n], leaf.padded) for n, leaf in self._inputs.items()}
        return {n: cut(padded[n], leaf.dims, mesh, rank) for n, leaf in self._inputs.items()}

    def _advance(self, inputs: Mapping[str, Tensor]) -> Result:
        other = None if self._check is None else self._check()
        if other is not None:
            return self._advance_by(other, inputs)
        with torch.no_grad():
            return self._compute(inputs)

    def _advance_by(self, other: TrainStep, inputs: Mapping[str, Tensor]) -> Result:
        """Run this step with another program."""
        other.seed, other.steps_done = self.seed, self.steps_done
        other.hyper.begin_like(self.hyper)
        loss = other._advance(inputs)
        self.steps_done = other.steps_done
        self.state.refresh()
        return loss

    def _compute(self, inputs: Mapping[str, Tensor]) -> Result:
        with told(self._planned_bytes, self._place.device, self._place.rank):
            values = self._values(inputs)
            made = (self._graphed(values),) if self._graphed else self._function(self._rank, *values)
            del values
        if self._is_first:
            self._program.first_run.end()
            self._is_first = False
        made, beyond = self._room.split(made)
        if beyond:
            return self._advance_by(self._room.other(beyond, self.steps_done), inputs)
        self.steps_done += 1
        self.state.refresh()
        return self._outputs.result(made)

    def _values(self, inputs: Mapping[str, Tensor]) -> list[Tensor]:
        """Return the program's arguments, in order."""
        hyper = self.hyper.at_step(self.steps_done)
        device = self._place.device
        values = []
        for leaf in self._arguments:
            if leaf.role in STATE_ROLES:
                values.append(self.state.local[leaf.name])
            elif leaf.role == "input":
                values.append(inputs[leaf.name].to(device, non_blocking=True).contiguous())
            elif leaf.role == "hyper":
                values.append(torch.full((), hyper[leaf.name], dtype=leaf.dtype, device=device))
            elif leaf.role == "seed":
                values.append(torch.full((), self.seed + self.steps_done, dtype=leaf.dtype, device=device))
            else:
                values.append(self._constants[leaf.name])
        return values


class OtherPrograms(Protocol):
    """Programs of one step for other shapes of batches, made by the compiler. An artefact has none.

    All ranks must ask for the same programs in the same order, because making one may join their processes.
    """

    def prepared(self, batch: object) -> object:
        """Return the batch padded to its bucket by the user's function."""
        ...

    def find(
        self, batch: object, mismatch: BatchMismatch
    ) -> tuple[dict[str, Tensor], Callable[[], TrainStep]]:
        """Return a batch's tensors by leaf, and a function that returns the step for it, compiled if needed.

        Raises ``mismatch`` if the batch differs in more than shapes and constants.
        """
        ...


def _share(mesh: Mesh) -> tuple[int, int]:
    """Return this rank's number among its host's ranks that run the artefact, and their number."""
    if mesh.world_size == 1 or WORLD_SIZE.get() != mesh.world_size:
        return 0, 1
    return LOCAL_RANK.get(), LOCAL_WORLD_SIZE.get()

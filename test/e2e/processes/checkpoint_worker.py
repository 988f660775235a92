"""State on a mesh: initial values, DTensors, and checkpoints that move to other meshes.

``checkpoint_worker.py save FOLDER`` on 4 ranks, then ``checkpoint_worker.py load FOLDER`` on 4 or 2. In
between, ``checkpoint_worker.py kill FOLDER RANK EVENT NAME`` on 4 saves other values; that rank is killed
when it is about to open or rename the file NAME.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from rank_main import run
from torch.distributed.tensor import DTensor

from shardc.runtime.checkpoint.load import load as load_values
from shardc.runtime.checkpoint.save import save as save_values
from shardc.runtime.comm.connect import connect
from shardc.runtime.comm.layout import Leaf
from shardc.runtime.comm.mesh import Mesh
from shardc.runtime.errors import BadCheckpoint, CheckpointNotSaved, StateMismatch
from shardc.runtime.state import State

DATA, TENSOR = ("data", 1, 2), ("tensor", 1, 2)
MAJOR, MINOR = ("x", 1, 2), ("x", 2, 2)
SHAPES = {
    "weight": (8, 6),
    "bias": (12,),
    "weight/exp_avg": (8, 6),
    "weight/step": (),
    "mean": (4, 4, 4),
    "odd": (5, 3),
    "heads": (12, 2),
}
ROLES = {"weight/exp_avg": "opt_state", "weight/step": "opt_state", "mean": "buffer"}

LAYOUTS = {
    Mesh((("data", 2), ("tensor", 2))): {
        "weight": ((DATA,), (TENSOR,)),
        "bias": ((TENSOR, DATA),),  # not in the mesh's order
        "weight/exp_avg": ((DATA, TENSOR), ()),
        "weight/step": (),
        "mean": ((), (TENSOR,), ()),
        "odd": ((DATA, TENSOR), ()),
        "heads": ((TENSOR,), ()),
    },
    Mesh((("x", 4),)): {
        "weight": ((("x", 1, 4),), ()),
        "bias": ((MINOR,),),  # a sub-axis
        "weight/exp_avg": ((MINOR, MAJOR), ()),
        "weight/step": (),
        "mean": ((MAJOR,), (), (MINOR,)),
        "odd": ((("x", 1, 4),), ()),
        "heads": ((MAJOR,), ()),
    },
    Mesh((("data", 2),)): {
        "weight": ((), (DATA,)),
        "bias": ((DATA,),),
        "weight/exp_avg": ((DATA,), ()),
        "weight/step": (),
        "mean": ((), (), ()),
        "odd": ((), (DATA,)),
        "heads": ((DATA,), ()),
    },
}

WHOLE_HEADS = (16, 2)  # 3 heads of 4 rows, on 2 devices: 8 rows and 4 where DTensor has 6 and 6


def padded(name: str, mesh: Mesh) -> tuple[int, ...]:
    """The padded shape of what does not divide; of five rows, ranks of four hold 2, 2, 1 and none."""
    odd = (5, 4) if mesh.world_size == 2 else (8, 3)
    return {"odd": odd, "heads": WHOLE_HEADS}.get(name, ())


def whole(name: str) -> torch.Tensor:
    """The value that the checkpoint holds."""
    generator = torch.Generator().manual_seed(len(name))
    return torch.rand(SHAPES[name], generator=generator, dtype=torch.float64)


def leaves(mesh: Mesh) -> list[Leaf]:
    layouts = LAYOUTS[mesh]
    return [
        Leaf(n, ROLES.get(n, "param"), SHAPES[n], torch.float64, layouts[n], 0.0, padded(n, mesh))
        for n in SHAPES
    ]


def new_state(mesh: Mesh, source: object = None) -> State:
    state = State(leaves(mesh), mesh, connect(mesh, "cpu", 60))
    state.initialise(source, None, {})
    return state


def check(state: State, what: str) -> None:
    """Each DTensor is the whole value, and is the very tensor that the program works on."""
    for name, value in state.dtensors().items():
        assert isinstance(value, DTensor), name
        assert value.shape == SHAPES[name], f"{what} {name}"
        assert torch.equal(value.full_tensor(), whole(name)), f"{what}: {name} differs"
        state.local[name].data = state.local[name] * 2
        state.refresh()
        state.dtensors()
        assert torch.equal(value.full_tensor(), whole(name) * 2), (
            f"{what}: {name} does not follow its program"
        )
        state.local[name].data = state.local[name] / 2
    state.refresh()


def check_initial(mesh: Mesh) -> None:
    """From whole tensors, from DTensors, and from a function that makes one block."""
    names = list(SHAPES)
    first = new_state(mesh, {name: whole(name) for name in names})
    check(first, "whole tensors")
    check(new_state(mesh, first.dtensors()), "DTensors")
    check(new_state(mesh, lambda name, shape, dtype, slices: whole(name)[slices]), "function")


def save(folder: Path) -> None:
    mesh = Mesh((("data", 2), ("tensor", 2)))
    check_initial(mesh)
    check_initial(Mesh((("x", 4),)))
    state = new_state(mesh, {name: whole(name) for name in SHAPES})
    save_values(folder, {**state.dtensors(), "steps": torch.tensor(7)})


def save_and_die(folder: Path, rank: int, event: str, name: str) -> None:
    mesh = Mesh((("data", 2), ("tensor", 2)))
    state = new_state(mesh, {name: whole(name) * 3 for name in SHAPES})

    def hook(found: str, arguments: tuple[object, ...]) -> None:
        if found == event and Path(str(arguments[0])).name == name:
            os.kill(os.getpid(), signal.SIGKILL)

    if dist.get_rank() == rank:
        sys.addaudithook(hook)
    save_values(folder, {**state.dtensors(), "steps": torch.tensor(8)})


def load(folder: Path) -> None:
    for mesh in LAYOUTS:
        if mesh.world_size == dist.get_world_size():
            state, steps = new_state(mesh), torch.tensor(0)
            load_values(folder, {**state.dtensors(), "steps": steps})
            state.take_copies()
            assert int(steps) == 7
            check(state, f"checkpoint on {mesh.describe()}")
    refused(lambda: load_values(folder, {"other": torch.tensor(0)}), "no tensor 'other'")
    refused(lambda: load_values(folder, {"bias": torch.zeros(3)}), "'bias' has shape [12]")
    refused(lambda: load_values(folder / "none", {}), "it holds no checkpoint")
    refused(lambda: save_values(folder.parent, {}), "holds no checkpoint")


def refused(action: object, text: str) -> None:
    try:
        action()  # type: ignore[operator]
    except (BadCheckpoint, CheckpointNotSaved, StateMismatch) as error:
        assert text in str(error), str(error)
    else:
        raise AssertionError(f"nothing raised for: {text}")


def main(mode: str, folder: Path, *more: str) -> None:
    if mode == "kill":
        save_and_die(folder, int(more[0]), *more[1:])
    else:
        (save if mode == "save" else load)(folder)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    run(lambda: main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:]), "state agrees")

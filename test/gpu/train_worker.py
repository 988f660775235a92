"""Trains with a prepared artefact, and prints each loss on rank 0:
``python train_worker.py NAME [--cuda-graph]``.

With ``--rank-1-dies`` that rank does, while the others are in the third step.
"""

import json
import os
import signal
import sys

import models
import prepared
import torch
import torch.distributed as dist

from shardc.runtime import TrainStep


def main(name: str, *options: str) -> None:
    path = prepared.folder() / "models" / name
    said = json.loads(path.with_suffix(".json").read_text())
    step = TrainStep.load(path, device=prepared.device())
    graph = "--cuda-graph" in options
    if graph:
        step.use_cuda_graph()
    size = models.TINY["llama"] if prepared.facts()["tiny"] else models.SMALL
    losses = []
    for n in range(len(said["losses"])):
        if "--rank-1-dies" in options and step.rank == 1 and n == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        losses.append(step(models.batch(said["kind"], size, n)).item())
    if step.rank == 0:
        captures = step._graphed.captures if graph else 0
        found = {"losses": losses, "expected": said["losses"], "captures": captures}
        segments = [] if prepared.interprets() else torch.cuda.memory_snapshot()
        found["expandable"] = any(segment["is_expandable"] for segment in segments)
        print(json.dumps(found | {"collectives": step.collectives, "taken": step.symmetric_collectives()}))
    if dist.is_initialized():
        dist.barrier()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Trains with a prepared artefact, and prints each loss on rank 0: ``python train_worker.py NAME [--cuda-graph]``."""

import json
import sys

import models
import prepared
import torch.distributed as dist

from shardc.runtime import TrainStep


def main(name: str, graph: bool) -> None:
    path = prepared.folder() / "models" / name
    said = json.loads(path.with_suffix(".json").read_text())
    step = TrainStep.load(path, device=prepared.device())
    if graph:
        step.use_cuda_graph()
    size = models.TINY["llama"] if prepared.facts()["tiny"] else models.SMALL
    losses = [step(models.batch(said["kind"], size, n)).item() for n in range(len(said["losses"]))]
    if step.rank == 0:
        captures = step._graphed.captures if graph else 0
        found = {"losses": losses, "expected": said["losses"], "captures": captures}
        print(json.dumps(found | {"collectives": step.collectives, "taken": step.symmetric_collectives()}))
    if dist.is_initialized():
        dist.barrier()


if __name__ == "__main__":
    main(sys.argv[1], "--cuda-graph" in sys.argv)

"""Sailor's side, for an interpreter that has its packages and not shardc: one planner's plans, and the judge.

    python sailor_side.py request.json answer.json

The judge is Sailor's simulator. A plan is judged only if it has each layer once, uses no more devices than
there are, keeps each tensor group in a node (the simulator leaves out the computing of others), has in no
stage fewer replicas than in the first (it counts micro-batches by those of the first, and thus leaves out
work), has measured times in the profile (it takes 0 s for those that lack them), and fits into memory by the
simulator's own formula.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

MOST = 300
"""Plans of a planner's list that are judged beyond its first."""


class Sailor:
    """Sailor's files for one case: a model, a kind of GPU, nodes, and a global batch."""

    def __init__(self, root: Path, case: dict[str, Any], folder: Path) -> None:
        self.case, self.planner = case, root / "sailor/sailor/Planner"
        os.environ["SAILOR_PATH"] = str(root)
        sys.path[:0] = [str(root / "sailor"), str(self.planner / "simulations")]
        training = folder / "training.json"
        training.write_text(json.dumps(case["training"]))
        self.training, self.training_file = case["training"], str(training)
        self.folder, self.model, self.gpu = folder, case["training"]["model"], case["gpu"]
        cluster = self._read("simulations/configs/basic_cluster_config.json")
        self.zone, self.node = cluster["zone"], cluster[self.gpu]
        self.profiles = self._read("simulations/profiles_tmp.json")
        self.information = self._read("llm_info.json")

    def _read(self, name: str) -> Any:
        return json.loads((self.planner / name).read_text())

    def _of(self, name: str) -> str:
        return str(self.planner / "baselines" / name)

    @property
    def devices(self) -> int:
        return self.case["nodes"] * self.node["gpus_per_node"]

    def plans(self, name: str, limit_s: float) -> list[tuple[list[Any], float]]:
        """Return lists of a planner's plans, the favourite first, and the seconds of each search."""
        profiles = Path(self._of(f"{name}/profiles"))
        if name == "Sailor":
            profiles = self.planner / "sailor_planner/profiles"
        if not (profiles / self.model / self.gpu).exists():
            raise SystemExit(f"its repository has no profile of {self.model} on {self.gpu}")
        if name == "Varuna":  # as Sailor's scripts ask it, and with each GPU as a node of its own
            return [self._varuna(gpus_per_node) for gpus_per_node in (self.node["gpus_per_node"], 1)]
        flat = {"gpu_type": self.gpu, "num_nodes": self.case["nodes"], "zone": self.zone, **self.node}
        by_type = {self.gpu: {"num_nodes": self.case["nodes"], **self.node}, "zone": self.zone}
        build, cluster = {
            "Piper": (self._piper, flat),
            "AMP": (self._amp, by_type),
            "Metis": (lambda: self._metis(limit_s), by_type),
            "Galvatron": (self._galvatron, flat),
            "Sailor": (self._sailor, self._limits()),
        }[name]
        return [self._asked(build, cluster)]

    def _asked(self, build: Any, cluster: dict[str, Any]) -> tuple[list[Any], float]:
        shell, os.system = os.system, lambda command: 0  # what constructors compile is compiled
        try:
            planner = build()
        finally:
            os.system = shell
        start_s = time.perf_counter()
        plans = planner.get_sorted_plans(cluster_config=cluster, training_config=dict(self.training))
        return list(plans), time.perf_counter() - start_s

    def _class(self, module: str, name: str) -> Any:
        return getattr(importlib.import_module(f"sailor.Planner.{module}"), name)

    def _varuna(self, gpus_per_node: int) -> tuple[list[Any], float]:
        given = Path(self._of(f"Varuna/profiles/{self.model}/{self.gpu}/profile_{gpus_per_node}.json"))
        planner = self._class("baselines.Varuna.varuna_planner", "VarunaPlanner")
        if not given.exists():
            return [], 0.0
        layers = json.loads(given.read_text())
        known = [{size for size, row in rows.items() if "mem_required" in row} for rows in layers.values()]
        sizes = sorted(set.intersection(*known), key=int)  # it fails at those whose memory was not measured
        profile = self.folder / "varuna.json"
        kept = {layer: {size: rows[size] for size in sizes} for layer, rows in layers.items()}
        profile.write_text(json.dumps(kept))
        nodes = self.devices // gpus_per_node
        cluster = {"gpu_type": self.gpu, "num_nodes": nodes, "zone": self.zone, **self.node}
        cluster["gpus_per_node"] = gpus_per_node
        return self._asked(lambda: planner(str(profile), "throughput"), cluster)

    def _piper(self) -> Any:
        planner = self._class("baselines.Piper.piper_planner", "PiperPlanner")
        return planner(self._of(f"Piper/profiles/{self.model}/{self.gpu}/profile.json"))

    def _amp(self) -> Any:
        planner = self._class("baselines.AMP.amp_planner", "AMPPlanner")
        return planner(self._of(f"AMP/profiles/{self.model}"), "throughput")

    def _metis(self, limit_s: float) -> Any:
        module = importlib.import_module("sailor.Planner.baselines.Metis.metis_planner")
        module.TIME_BUDGET_SEC = limit_s
        return module.MetisPlanner(self._of(f"Metis/profiles/{self.model}"), self.training_file)

    def _galvatron(self) -> Any:
        planner = self._class("baselines.Galvatron.galvatron_planner", "GalvatronPlanner")
        folder = self._of(f"Galvatron/profiles/{self.model}/{self.gpu}")
        return planner(self.training_file, folder, "throughput")

    def _limits(self) -> dict[str, Any]:
        return {f"{self.gpu}_{self.zone}": self.devices, "max_cost": 0.0, "min_throughput": 0.0}

    def _sailor(self) -> Any:
        quotas = self.folder / "quotas.json"
        quotas.write_text(json.dumps({self.gpu: {self.zone: self.devices}}))
        planner = self._class("sailor_planner.cpp_src.planner", "SailorPlanner")
        profiles = str(self.planner / f"sailor_planner/profiles/{self.model}") + "/"
        return planner(profiles, self.training_file, str(quotas), "throughput", False)


class Judge:
    """Sailor's simulator."""

    def __init__(self, sailor: Sailor) -> None:
        module = importlib.import_module("sailor.Planner.simulations.runtime_simulator")
        self._as_plan, self._sailor = module.convert_homogeneous, sailor
        root = os.environ["SAILOR_PATH"]
        given = sailor.training, sailor.information, False, sailor.profiles
        self._simulator = module.Simulator(root, *given, zone=sailor.zone)

    def judged(self, plan: dict[str, Any]) -> dict[str, Any]:
        """Return the seconds of a plan and what it is, or why it is not judged."""
        plan["mbs"] = int(plan["mbs"])  # Varuna halves it and returns 4.0
        found = self._as_plan(plan, self._sailor.training)
        pipelines = found.pipeline_list
        stages = [[list(map(int, stage)) for stage in p.layers_per_stage] for p in pipelines]
        degrees = [[[group.tmp for group in stage] for stage in p.tmp_configs] for p in pipelines]
        shape = {
            "micro_batch": found.mbs,
            "stages": [[len(stage) for stage in pipeline] for pipeline in stages],
            "data": [list(p.num_dp) for p in pipelines],
            "tensor": [[sorted(set(stage)) for stage in pipeline] for pipeline in degrees],
        }
        why = self._why_not(found, stages, degrees) or (
            "" if self._simulator.check_config_fits(plan) else "memory"
        )
        seconds = None if why else float(self._simulator.simulate_iteration_time(plan)[0])
        return {"seconds": seconds, "why": why, "plan": shape}

    def _why_not(self, plan: Any, stages: list[Any], degrees: list[Any]) -> str:
        layers = list(range(self._sailor.training["num_all_layers"]))
        if any([layer for stage in pipeline for layer in stage] != layers for pipeline in stages):
            return "layers are missing"
        if sum(d for pipeline in degrees for stage in pipeline for d in stage) > self._sailor.devices:
            return "more devices than there are"
        groups = [group for p in plan.pipeline_list for stage in p.tmp_configs for group in stage]
        if any(len(group.vm_list) > 1 or group.tmp > self._sailor.node["gpus_per_node"] for group in groups):
            return "a tensor group across nodes"
        if any(count < p.num_dp[0] for p in plan.pipeline_list for count in p.num_dp):
            return "a stage has fewer replicas than the first"
        times = self._sailor.profiles[self._sailor.model]
        for group in groups:
            if str(group.tmp) not in times[group.vm_list[0].gpu_type].get(str(plan.mbs), {}):
                return "no measured times"
        return ""


def _answer(request: dict[str, Any], folder: Path) -> dict[str, Any]:
    sailor = Sailor(Path(request["root"]), request["case"], folder)
    judge = Judge(sailor)
    if "plans" in request:
        return {"judged": [judge.judged(plan) for plan in request["plans"]]}
    skipped, picked, best = Counter[str](), list[dict[str, Any]](), list[dict[str, Any]]()
    lists = sailor.plans(request["planner"], request["limit_s"])
    for plans, _ in lists:
        first = None
        for place, plan in enumerate(plans):
            if first is not None and place >= MOST:
                break
            found = judge.judged(plan)
            if found["seconds"] is None:
                skipped[found["why"]] += first is None
                continue
            first = first or found
            best.append(found)
        picked += [first] if first else []
    return {
        "search_s": sum(spent_s for _, spent_s in lists),
        "plans": sum(len(plans) for plans, _ in lists),
        "skipped": {why: count for why, count in skipped.items() if count},
        "picked": min(picked, key=_seconds, default=None),
        "best": min(best, key=_seconds, default=None),
    }


def _seconds(found: dict[str, Any]) -> float:
    return found["seconds"]


def main() -> None:
    request, answer = map(Path, sys.argv[1:])
    folder = answer.resolve().parent
    with contextlib.redirect_stdout(io.StringIO()):
        found = _answer(json.loads(request.read_text()), folder)
    answer.write_text(json.dumps(found))


if __name__ == "__main__":
    main()

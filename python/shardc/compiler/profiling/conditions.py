"""Where and how this machine's calls are measured."""

from shardc.compiler.probe import machine
from shardc.cost.profile import Conditions
from shardc.environment import OMP_NUM_THREADS


def conditions(processes: int) -> Conditions:
    """Those under which ``shardc run`` runs so many processes: a thread each, if nobody says otherwise."""
    processor, cores, memory_bytes, _, torch_version = machine()
    text = f"{processor}, {cores} cores, {memory_bytes} bytes, torch {torch_version}"
    return Conditions(text, processes, int(OMP_NUM_THREADS.text() or 1))

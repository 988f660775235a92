"""The conditions under which this machine's calls are measured."""

from shardc.compiler.probe import machine
from shardc.cost.profile import Conditions
from shardc.environment import OMP_NUM_THREADS


def conditions(processes: int) -> Conditions:
    """Return the conditions of ``shardc run`` with so many processes: one thread each by default."""
    found = machine()
    text = f"{found.processor}, {found.cores} cores, {found.memory_bytes} bytes, torch {found.torch_version}"
    return Conditions(text, processes, int(OMP_NUM_THREADS.text() or 1))

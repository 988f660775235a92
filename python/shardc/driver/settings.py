"""The options of the ``torch.compile`` backend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shardc.backends.measure.contest import surroundings
from shardc.diagnostics.dynamo import BadBackendOption
from shardc.diagnostics.fusion import BadFusionEdge
from shardc.passes.fuse.choices import MATMULS, NUMERICS
from shardc.tuner.database.place import tuning_choices

if TYPE_CHECKING:
    from shardc.passes.fuse.wishes import Wishes

EDGES = ("forbid_fusion", "force_fusion")


@dataclass(frozen=True)
class Settings:
    """The options of the backend: see :func:`shardc.driver.dynamo.shardc_backend`."""

    fuse: bool = True
    numerics: str = "fused"
    random: str = "counter"
    externs: str = "measured"
    matmuls: str = "measured"
    cuda_graphs: bool = False
    forbid_fusion: tuple[str, ...] = ()
    force_fusion: tuple[str, ...] = ()

    @staticmethod
    def of(options: Mapping[str, Any]) -> Settings:
        """Raises BadBackendOption, BadFusionEdge."""
        allowed = {
            "fuse": (True, False), "cuda_graphs": (True, False), "numerics": NUMERICS, "random": ("counter", "torch"),
            "externs": ("measured", "aten"), "matmuls": ("measured", *MATMULS),
        }  # fmt: skip
        found: dict[str, Any] = {}
        for option, value in options.items():
            is_list = isinstance(value, list | tuple) and all(isinstance(edge, str) for edge in value)
            if not is_list if option in EDGES else value not in allowed.get(option, ()):
                raise BadBackendOption(option=option, value=value)
            found[option] = tuple(value) if option in EDGES else value
        settings = Settings(**found)
        if settings.has_edges:
            settings.wishes()
        return settings

    @property
    def has_edges(self) -> bool:
        return bool(self.forbid_fusion or self.force_fusion)

    @property
    def measured(self) -> bool:
        """Whether a contest may decide who computes a matmul."""
        return self.fuse and self.externs == "measured"

    def cache_key(self) -> str:
        """All of the settings, of what contests decided under them, and of how kernels are tuned, that a program depends
        on.
        """
        tuned = f" tuned {choices}" if self.fuse and (choices := tuning_choices()) else ""
        return f"{self} {surroundings()}{tuned}" if self.measured else f"{self}{tuned}"

    def wishes(self) -> Wishes:
        """What the user wants of fusion. Raises BadFusionEdge."""
        from shardc.passes.fuse.wishes import Wishes  # reads MLIR's locations

        wishes = Wishes.of(self.forbid_fusion, self.force_fusion)
        for edge in (*wishes.forbid, *wishes.force):
            if edge.first.number or edge.second.number:
                problem = "numbers are those of one program, and a model has several; name the ops by target and line"
                raise BadFusionEdge(edge=edge.text, problem=problem)
        return wishes

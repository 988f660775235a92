"""Names of the targets that kernels can be compiled for."""

from shardc.diagnostics.kernels import UnknownTarget

TARGETS: dict[str, str] = {
    "sm_80": "A100",
    "sm_90": "H100, H200",
    "sm_100": "B200",
    "gfx942": "MI300X",
    "cpu": "this machine's processor",
}
"""Targets with their best-known devices. ``backends.registry.register_target`` adds others."""


def check_target(name: str) -> None:
    """Raise UnknownTarget for a name that is not registered."""
    if name not in TARGETS:
        raise UnknownTarget(target=name, known=", ".join(TARGETS))

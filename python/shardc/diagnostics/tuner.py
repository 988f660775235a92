"""Errors of the tuner."""

from __future__ import annotations

from typing import ClassVar

from shardc.diagnostics.base import ShardcError


class EmptySpace(ShardcError):
    """What the user pins and forbids leaves no legal configuration of a kernel."""

    template: ClassVar[str] = "no legal configuration is left of the sketches {sketches} under the pins {pinned}"
    hint: ClassVar[str] = "pin or forbid less; shardc tune --space prints what is legal"


class MalformedWishes(ShardcError):
    """A file or option that pins, forbids or adds configurations is not of the form.

    Fails: ``{"pin": {"tile_m": "six"}}``. Works: ``{"pin": {"tile_m": 6}}``.
    """

    template: ClassVar[str] = "what is said of configurations cannot be read: {problem}"
    hint: ClassVar[str] = '{{"pin": {{"tile_m": 6}}, "forbid": [{{"sketch": "matmul", "tile_n": 32}}], "add": []}}'


class UnknownWish(ShardcError):
    """A name in what the user pins, forbids or adds is none of the kernels'.

    Fails: ``{"pin": {"tile_rows": 6}}``. Works: ``{"pin": {"tile_m": 6}}``.
    """

    template: ClassVar[str] = "no kernel has the {kind} {name!r}"
    hint: ClassVar[str] = "there are: {known}"

"""Reads clusters from YAML and checks each value in place, so that errors name the line."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import yaml

from shardc.cost.cluster.cluster import Cluster
from shardc.cost.cluster.facts import Facts, Kind, kinds, texts
from shardc.diagnostics.cluster import (
    BadClusterValue,
    ClusterError,
    MissingClusterKey,
    UnknownClusterKey,
    UnreadableCluster,
)
from shardc.diagnostics.text import did_you_mean

_TRUTHS = {"true": True, "false": False}
F = TypeVar("F", bound=Facts)


def read_cluster(path: Path) -> Cluster:
    """Read the cluster in a file.

    Raises UnreadableCluster, UnknownClusterKey, MissingClusterKey, BadClusterValue, LinksDoNotConnect,
    TwoOfOneName.
    """
    try:
        return cluster_of(path.read_text(), str(path))
    except FileNotFoundError:
        raise UnreadableCluster(path=path, problem="does not exist") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableCluster(path=path, problem=f"can't be read ({error})") from None


def cluster_of(text: str, path: str) -> Cluster:
    """Read the cluster in a YAML text; errors name ``path``."""
    try:
        root = yaml.compose(text, yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = None if mark is None else f"{path}:{mark.line + 1}"
        problem = f"is not YAML: {getattr(error, 'problem', None) or error}"
        raise UnreadableCluster(path=path, problem=problem, where=where) from None
    if not isinstance(root, yaml.MappingNode):
        raise UnreadableCluster(path=path, problem="holds no keys with values")
    return _Reader(path).part(root, Cluster)


class _Reader:
    """Converter of YAML nodes, which know their lines, to dataclasses."""

    def __init__(self, path: str) -> None:
        self._path = path

    def part(self, node: yaml.MappingNode, of: type[F]) -> F:
        """Read one part of a cluster."""
        fields, lines, values = kinds(of), {}, {}
        for key_node, value in node.value:
            key, what = str(key_node.value), of.__name__.lower()
            if key in lines:
                problem = f"has the key {key!r} of a {what} twice"
                raise UnreadableCluster(path=self._path, problem=problem, where=self._where(key_node))
            lines[key] = self._where(key_node)
            if key not in fields:
                near, known = did_you_mean(key, [*fields]), ", ".join(fields)
                raise UnknownClusterKey(of=what, key=key, nearest=near, known=known, where=lines[key])
            values[key] = self._value(value, fields[key], key, of)
        for key, kind in fields.items():
            if kind.is_required and key not in values:
                what, where = of.__name__.lower(), self._where(node)
                raise MissingClusterKey(of=what, key=key, expected=kind.expected, where=where)
        try:
            return of(**values)
        except ClusterError as error:
            if error.where:
                raise
            where = lines.get(str(error.fields.get("key")), self._where(node))
            raise type(error)(where=where, **error.fields) from None

    def _value(self, node: yaml.Node, kind: Kind, key: str, of: type[Facts]) -> object:
        if kind.is_list or kind.is_table:
            if not isinstance(node, yaml.SequenceNode):
                raise self._bad(node, kind, key, of)
            inner = Kind(kind.type, kind.bound, kind.choices, is_list=kind.is_table)
            return tuple(self._value(item, inner, key, of) for item in node.value)
        if issubclass(kind.type, Facts):
            if not isinstance(node, yaml.MappingNode):
                raise self._bad(node, kind, key, of)
            return self.part(node, kind.type)
        value = _scalar(node, kind)
        if not kind.fits(value):
            raise self._bad(node, kind, key, of)
        return value

    def _bad(self, node: yaml.Node, kind: Kind, key: str, of: type[Facts]) -> BadClusterValue:
        is_scalar = isinstance(node, yaml.ScalarNode)
        given = node.value or "nothing" if is_scalar else f"a {type(node).__name__[:-4].lower()}"
        expected = kind.expected + (did_you_mean(node.value, kind.choices) if is_scalar else "")
        says, what = texts(of).get(key, f"give {kind.expected}"), of.__name__.lower()
        where = self._where(node)
        return BadClusterValue(key=key, of=what, given=given, expected=expected, says=says, where=where)

    def _where(self, node: yaml.Node) -> str:
        return f"{self._path}:{node.start_mark.line + 1}"


def _scalar(node: yaml.Node, kind: Kind) -> object:
    """Convert a scalar to its field's type; None if it cannot be. YAML 1.1 reads ``900e9`` as a text."""
    if not isinstance(node, yaml.ScalarNode):
        return None
    if kind.type in (int, float):
        try:
            return kind.type(node.value)
        except ValueError:
            return None
    return _TRUTHS.get(node.value) if kind.type is bool else node.value

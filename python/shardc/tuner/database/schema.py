"""Tables of the database, and migrations from earlier schemas."""

from __future__ import annotations

import sqlite3
from functools import cache

MIGRATIONS = (
    """
    CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
    CREATE TABLE tasks (
        id INTEGER PRIMARY KEY,
        structure TEXT NOT NULL, target TEXT NOT NULL, threads INTEGER NOT NULL,
        text TEXT NOT NULL, label TEXT NOT NULL, dtype TEXT NOT NULL,
        skeleton TEXT NOT NULL, sizes TEXT NOT NULL, shape_class TEXT NOT NULL,
        UNIQUE (structure, target, threads)
    );
    CREATE INDEX tasks_by_skeleton ON tasks (skeleton, target, threads);
    CREATE TABLE trials (
        id INTEGER PRIMARY KEY,
        task INTEGER NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
        generator TEXT NOT NULL, sketch TEXT NOT NULL, point TEXT NOT NULL, outcome TEXT NOT NULL,
        ratio REAL, seconds REAL, spread REAL, said TEXT NOT NULL, figures TEXT NOT NULL, made_at REAL NOT NULL
    );
    CREATE INDEX trials_by_point ON trials (task, generator, sketch, point);
    CREATE VIEW latest AS
        SELECT * FROM trials AS one WHERE NOT EXISTS (
            SELECT 1 FROM trials AS later WHERE later.task = one.task AND later.generator = one.generator
            AND later.sketch = one.sketch AND later.point = one.point AND later.id > one.id
        );
    CREATE VIEW best AS
        SELECT id, task, generator, sketch, point, outcome, min(ratio) AS ratio, seconds, spread, said, figures, made_at
        FROM latest WHERE outcome = 'measured' GROUP BY task, generator;
    """,  # noqa: E501
    """
    CREATE TABLE profiles (
        machine TEXT NOT NULL, processes INTEGER NOT NULL, threads INTEGER NOT NULL,
        call TEXT NOT NULL, seconds REAL NOT NULL, made_at REAL NOT NULL,
        PRIMARY KEY (machine, processes, threads, call)
    );
    CREATE TABLE programs (
        machine TEXT NOT NULL, processes INTEGER NOT NULL, threads INTEGER NOT NULL,
        program TEXT NOT NULL, seconds REAL NOT NULL, peak_bytes INTEGER NOT NULL, made_at REAL NOT NULL,
        PRIMARY KEY (machine, processes, threads, program)
    );
    """,
)
"""Migrations: number n turns schema n into n + 1; schema 0 is an empty file.

View ``latest`` has the last trial of each point. View ``best`` has the latest trial with the smallest ratio:
SQLite takes the other columns from the row with the ``min``.
"""


def migrate(connection: sqlite3.Connection) -> int:
    """Migrate a database to the present schema, atomically; return the schema that it had.

    A database of a later schema is left unchanged.
    """
    found = version(connection)
    if found >= len(MIGRATIONS):
        return found
    connection.execute("BEGIN IMMEDIATE")
    try:
        found = version(connection)
        for number in range(found, len(MIGRATIONS)):
            for statement in filter(str.strip, MIGRATIONS[number].split(";")):
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {max(found, len(MIGRATIONS))}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    return found


def check_schema(connection: sqlite3.Connection) -> None:
    """Raise sqlite3.DatabaseError for a file with other tables, views or triggers than shardc's.

    A trigger runs when data is written, and a view when data is read. So a foreign one is code, not data.
    """
    if version(connection) == len(MIGRATIONS) and _objects(connection) != _ours(MIGRATIONS):
        raise sqlite3.DatabaseError("it has tables, views or triggers that shardc did not make")


@cache
def _ours(_: tuple[str, ...]) -> frozenset[tuple[str, str, str]]:
    """Return the objects of the schema that the present migrations make."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        migrate(connection)
        return _objects(connection)
    finally:
        connection.close()


def _objects(connection: sqlite3.Connection) -> frozenset[tuple[str, str, str]]:
    """Return kind, name and text of all objects in a file, except for SQLite's own."""
    found = connection.execute("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL")
    own = ("sqlite_sequence", "sqlite_stat1", "sqlite_stat4")
    return frozenset((kind, name, " ".join(sql.split())) for kind, name, sql in found if name not in own)


def distrust(connection: sqlite3.Connection) -> None:
    """Harden SQLite against a malicious file: no function calls from its schema, and checked cell sizes."""
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")


def version(connection: sqlite3.Connection) -> int:
    """Return the number of a file's schema."""
    return connection.execute("PRAGMA user_version").fetchone()[0]

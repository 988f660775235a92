"""Every trial that was ever made, on disk."""

from shardc.tuner.database.database import Database, Found, database_path, open_database

__all__ = ["Database", "Found", "database_path", "open_database"]

"""Dynamo's frames kept on disk: a second process runs a model without tracing it.

``hook.py`` stands between Dynamo and its trace, ``trace.py`` reads what Dynamo found out, ``cache.py`` finds and keeps
frames on disk, ``entry.py`` is one as it is kept, ``conditions.py`` what its guards ask, ``content.py`` what a value is
across processes.
"""

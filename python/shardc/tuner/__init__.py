"""Searches tile configurations of kernels: Ansor's loop for shardc's kernels.

A :class:`~shardc.tuner.task.Task` is a kernel on a target. Its :class:`~shardc.tuner.space.space.Space` holds the legal
:class:`~shardc.tuner.point.Point` s, each of which is a ``#kern.config``. A search strategy proposes points, the cost
model ranks them, the builder compiles those that are worth it, the runner times them against the incumbent, and the
database remembers every :class:`~shardc.tuner.trial.Trial`. ``docs/decisions/0042-tuner.md`` is the map.
"""

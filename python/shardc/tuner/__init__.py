"""Tuner: search for tile configurations of kernels, with Ansor's loop.

A :class:`~shardc.backends.tuning.task.Task` is a kernel on a target. Its
:class:`~shardc.backends.tuning.space.Space` holds the legal :class:`~shardc.backends.tuning.point.Point` s,
each of which is a ``#kern.config``. A search strategy proposes points, the cost model ranks them, the builder
compiles the most promising, the runner times them against the incumbent, and the database stores every
:class:`~shardc.backends.tuning.trial.Trial`. ``docs/decisions/0042-tuner.md`` describes the design.
"""

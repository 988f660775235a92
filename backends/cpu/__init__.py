"""Machine code for the host CPU: a ``kern.kernel`` body becomes loops, the loops become a shared object.

``extract`` -> ``graph`` (reading) -> ``roots``, ``nests``, ``stages`` (schedule) -> ``emit`` (loops) -> ``polynomials``
->
``lower`` -> ``link``; ``compile`` drives them and keeps the results in ``cache``. Matmuls: ``contraction`` finds them,
``tiles`` cuts them up, ``matmul`` writes their loops, with ``pack`` and ``microkernel``.
"""

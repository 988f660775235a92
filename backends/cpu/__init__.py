"""Machine code for the host CPU: a ``kern.kernel`` body becomes loops, the loops become a shared object.

``extract`` -> ``graph`` (reading) -> ``roots``, ``nests``, ``stages`` (schedule) -> ``emit`` (loops) ->
``lower`` -> ``link``; on the way ``vectorize`` puts loops into lanes, and arithmetic of ``polynomials`` and
``tables`` takes the place of functions. ``compile`` drives them and keeps the results in ``cache``. Matmuls:
``contraction`` finds them, ``tiles`` cuts them up, ``matmul`` writes their loops, with ``pack`` and
``microkernel``.
"""

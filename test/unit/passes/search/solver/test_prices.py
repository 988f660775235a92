"""Prices of memory: planes of choices, and what HiGHS gets of them."""

from __future__ import annotations

import numpy as np

from shardc.passes.search.solver.prices import Prices


def test_a_choice_that_fits_exactly_at_a_point_has_a_plane() -> None:
    """A sum of parts that is 1 up to rounding leaves a coefficient that HiGHS would refuse."""
    prices = Prices(1.0, points=2)
    prices.see(prices.best, 1.0)
    prices.add(1.0, np.array([0.5, 0.2]))
    prices.add(1.25, np.array([-0.5, 2.2e-16]))
    tried = prices.next(1e-3)
    assert tried is not None
    assert tried[0] > 0

"""Seconds of one operation on a device."""

from dataclasses import replace

import pytest

from shardc.cost.ops import (
    ROWS_TIME,
    DeviceRates,
    MeasuredProducts,
    Product,
    attention_s,
    least_product_s,
    pass_s,
    product_s,
)

A100 = DeviceRates(312e12, 19.5e12, 2e12, units=108, cache_bytes=40e6)


def test_large_products_reach_most_of_the_peak_and_none_more_than_it() -> None:
    for size in (1024, 2048, 4096, 8192):
        product = Product(1, size, size, size)
        assert 0.4 < product.flops / product_s(product, A100) / 312e12 < 0.82


def test_a_wave_of_few_tiles_takes_as_long_as_a_full_one() -> None:
    full, more = Product(1, 12 * 256, 9 * 128, 8192), Product(1, 13 * 256, 9 * 128, 8192)
    assert product_s(more, A100) > 1.3 * product_s(full, A100)
    without_waves = replace(A100, units=1)
    assert product_s(more, without_waves) == pytest.approx(13 / 12 * product_s(full, without_waves))


def test_a_product_of_few_terms_takes_the_time_of_its_traffic() -> None:
    scores = Product(64, 2048, 2048, 16)
    assert product_s(scores, A100) == pytest.approx(scores.moved_bytes / (0.85 * 2e12))


def test_terms_are_added_faster_the_more_there_are() -> None:
    short, long = (Product(1, 8192, 8192, k) for k in (512, 8192))
    assert short.flops / product_s(short, A100) < long.flops / product_s(long, A100)


def test_a_cpu_packs_weights_and_pads_no_rows() -> None:
    cpu = DeviceRates(2e11, 1e11, 3e10, is_cpu=True, stream_reached=1.0)
    few, some = (Product(1, rows, 1024, 1024, 4) for rows in (4, 16))
    assert product_s(few, replace(cpu, single_flop_s=1e15)) == pytest.approx(3 * 4 * 1024**2 / 3e10, rel=0.02)
    assert product_s(some, cpu) - product_s(few, cpu) == pytest.approx(12 * 2 * 1024**2 / 0.95e11, rel=0.05)
    alone = Product(1, 1, 1024, 1024, 4)
    assert product_s(alone, replace(cpu, single_flop_s=1e15)) == pytest.approx(4 * 1024**2 / 3e10, rel=0.01)


def test_an_empty_product_takes_a_launch() -> None:
    assert product_s(Product(1, 0, 8, 8), replace(A100, launch_s=3e-6)) == 3e-6


def test_what_the_last_cache_holds_is_read_faster() -> None:
    small, large = 20e6, 400e6
    assert pass_s(large, True, A100) / pass_s(small, True, A100) > 20
    assert pass_s(large, True, replace(A100, cache_bytes=0)) == pytest.approx(large / (0.85 * 2e12))


def test_reductions_and_random_numbers_take_longer_than_pointwise_passes() -> None:
    assert pass_s(1e9, False, A100) == pytest.approx(ROWS_TIME * pass_s(1e9, True, A100))


def test_f32_products_are_as_slow_as_their_units() -> None:
    half, single = (Product(1, 4096, 4096, 4096, size) for size in (2, 4))
    assert product_s(single, A100) > 10 * product_s(half, A100)


def test_attention_is_bound_by_arithmetic_or_by_memory() -> None:
    assert attention_s(1e12, 1e6, 2, False, A100) == pytest.approx(1e12 / (0.7 * 312e12))
    assert attention_s(1e12, 1e6, 2, True, A100) == pytest.approx(1e12 / (0.6 * 312e12))
    assert attention_s(1e6, 1e9, 2, False, A100) == pytest.approx(1e9 / (0.85 * 2e12))


MEASURED = MeasuredProducts([(1, 256, 512, 512, 4, 5e-3), (2, 64, 64, 64, 2, 1e-6)])


def test_a_measured_product_takes_what_was_measured() -> None:
    rates = replace(A100, measured=MEASURED, launch_s=1e-6)
    assert product_s(Product(1, 256, 512, 512, 4), rates) == pytest.approx(5.001e-3)
    other = Product(1, 512, 256, 512, 4)
    assert product_s(other, rates) == product_s(other, replace(rates, measured=None))


@pytest.mark.parametrize(
    "rates", [A100, replace(A100, units=1, is_cpu=True), replace(A100, measured=MEASURED)]
)
def test_parts_of_a_product_take_no_less_than_their_bound(rates: DeviceRates) -> None:
    for p in (Product(1, 256, 512, 512, 4), Product(2, 64, 64, 64), Product(1, 8192, 8192, 8192)):
        for parts in (1, 2, 8):
            for split in ("m", "n", "k"):
                part = replace(p, **{split: getattr(p, split) // parts})
                assert least_product_s(p, parts, rates) <= product_s(part, rates) * (1 + 1e-12)

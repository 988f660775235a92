"""The cost model ranks what it was shown, and carries it over to sizes that it was not shown."""

import math
import random
from dataclasses import replace

import numpy as np
import pytest
from by_estimate import Estimates
from recall import recall, spearman
from surface import Surface, space, task, text, true_s

from shardc.backends.tuning.point import Point
from shardc.backends.tuning.trial import Outcome, Trial
from shardc.tuner.cost_model.boosted_trees import PRETRAINED, WORST, BoostedTrees, target_of
from shardc.tuner.cost_model.kernel_features import kernel_features
from shardc.tuner.cost_model.kriging import LENGTHS, interpolated, places
from shardc.tuner.cost_model.point_features import point_features


def shown(count, of=None, seed=0):
    """A model that saw ``count`` points of a task of its own."""
    model, of = BoostedTrees(pretrained=None), of or space()
    points = random.Random(seed).sample(list(of.points()), count)
    model.learn(task(), of, Surface(of).measure(task(), points))
    return model


def test_it_ranks_points_that_it_did_not_see_and_the_estimate_does_not():
    of = space()
    points = list(of.points())
    times = [true_s(p.config) for p in points]
    trees = spearman(shown(200).scores(task(), of, points), times)
    assert trees > 0.8 > spearman(Estimates().scores(task(), of, points), times)


def test_it_carries_over_to_another_size():
    of = space()
    points = list(of.points())
    times = [true_s(p.config) for p in points]
    assert spearman(shown(200).scores(task(256, 128, 64), of, points), times) > 0.7


def test_before_any_trial_it_is_the_estimate():
    of = space()
    points = of.ranked(50)
    scores = BoostedTrees(pretrained=None).scores(task(), of, points)
    assert scores == sorted(scores)


def test_a_few_trials_say_something_of_the_points_around_them():
    of = space()
    points = list(of.points())
    times = [true_s(p.config) for p in points]
    assert (
        spearman(shown(10).scores(task(), of, points), times)
        > spearman(Estimates().scores(task(), of, points), times) + 0.1
    )


def test_neighbours_of_one_task_say_nothing_of_another():
    of, other = space(), task(128, 32, 256)
    points = of.ranked(50)
    assert shown(10).scores(other, of, points) == shown(0).scores(other, of, points)


def test_interpolation_goes_through_what_is_known_and_to_the_mean_far_from_it():
    known = np.linspace(0.0, 1.0, 9)[:, None]
    values = np.sin(3.0 * known[:, 0])
    between = np.array([[0.31], [0.77]])
    assert interpolated(known, values, between) == pytest.approx(np.sin(3.0 * between[:, 0]), abs=0.05)
    assert interpolated(known, values, np.array([[40.0]])) == pytest.approx([values.mean()])


def test_points_of_other_sketches_are_far_away():
    of = space()
    of = replace(of, sketches=(*of.sketches, replace(of.sketches[0], name="other")))
    values = {"tile_m": 1, "tile_n": 128, "block_k": 3}
    one, other = (Point.of(name, values) for name in ("tiled", "other"))
    found = places(of, [one, other])
    assert found[0, 1:4].tolist() == pytest.approx([0.0, 1.0, math.log2(3) / 7])
    assert np.abs(found[0] - found[1]).max() > 2 * LENGTHS[-1] - 1e-9


def test_what_a_space_counts_are_features():
    counted = replace(space().sketches[0], counts=lambda v: {"cycles": 2.0 * v["tile_m"]})
    of = replace(space(), sketches=(counted,))
    first, point = of.ranked(1)[0], Point.of("tiled", {"tile_m": 64, "tile_n": 8, "block_k": 16})
    found = BoostedTrees(pretrained=None).features(task(), of, point)
    assert found["cycles counted"] == math.log2(129)
    assert found["cycles counted over default"] == pytest.approx(
        math.log2(129 / (1 + 2 * first.config["tile_m"]))
    )


def test_the_same_trials_give_the_same_trees():
    points = list(space().points())
    assert shown(100).scores(task(), space(), points) == shown(100).scores(task(), space(), points)


def test_failures_are_the_worst():
    point = Point.of("tiled", {"tile_m": 1})
    assert target_of(Trial(point, Outcome.CRASHED)) == WORST
    assert target_of(Trial(point, Outcome.MEASURED, 1e9, 1.0)) == WORST
    assert target_of(Trial(point, Outcome.MEASURED, 0.5, 1.0)) == pytest.approx(math.log(0.5))
    assert target_of(Trial(point, Outcome.BUILT)) is None


def test_points_that_fail_are_learned_to_be_bad():
    of = space()
    bad = frozenset(p for p in of.points() if p.config["tile_n"] >= 64)
    model = BoostedTrees(pretrained=None)
    points = random.Random(0).sample(list(of.points()), 150)
    model.learn(task(), of, Surface(of, bad).measure(task(), points))
    scores = dict(zip(of.points(), model.scores(task(), of, list(of.points())), strict=True))
    assert max(scores[p] for p in of.points() if p not in bad) < 2 * WORST
    worst = sorted(scores, key=scores.get)[-len(bad) // 2 :]
    assert sum(p in bad for p in worst) > 0.95 * len(worst)


def test_kernels_of_one_structure_are_one_family_whatever_their_sizes():
    one, other = kernel_features(text(64, 32, 16)), kernel_features(text(128, 256, 512))
    assert one.family == other.family and one.sizes == {"m": 64, "n": 32, "k": 16}
    narrow = kernel_features(text(64, 32, 16).replace("f32", "f16"))
    assert narrow.family != one.family and narrow.element_bytes == 2


def test_features_say_how_often_and_how_unevenly_loops_are_cut():
    kernel, point = (
        kernel_features(text(100, 32, 16)),
        Point.of("tiled", {"tile_m": 64, "tile_n": 8, "block_k": 16}),
    )
    found = point_features(
        kernel, point, Point.of("tiled", {"tile_m": 32, "tile_n": 8, "block_k": 16}), 0.5, {"spill_bytes": 4}
    )
    assert found["tile_m pieces"] == 1.0 and found["tile_m edge"] == pytest.approx(1.28)
    assert found["tile_m over default"] == 1.0 and found["tile_n over default"] == 0.0
    assert found["tile_m x tile_n"] == math.log2(64 * 8 * 4)
    assert found["estimate"] == 0.5 and found["binary spill_bytes"] == 4.0
    assert found["work"] == pytest.approx(math.log2(1 + 2 * 100 * 32 * 16))


def test_recall_is_the_share_of_the_best_that_is_among_the_first():
    assert recall([1, 2, 3, 4], [1.0, 2.0, 3.0, 4.0], 2, 2) == 1.0
    assert recall([4, 3, 2, 1], [1.0, 2.0, 3.0, 4.0], 2, 2) == 0.0
    assert recall([1, 3, 2, 4], [1.0, 2.0, 3.0, 4.0], 2, 2) == 0.5


def test_the_shipped_trees_rank_a_cpu_s_kernels_without_a_trial_and_leave_gpus_to_the_estimate():
    of = space()
    points = of.ranked(50)
    on_cpu, on_gpu = BoostedTrees(), BoostedTrees()
    gpu = replace(task(), target="sm_90")
    assert PRETRAINED.is_file() and PRETRAINED.stat().st_size < 400_000
    assert on_gpu.scores(gpu, of, points) == sorted(on_gpu.scores(gpu, of, points))
    assert on_cpu.scores(task(), of, points) != on_gpu.scores(gpu, of, points)

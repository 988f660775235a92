"""A session divides its budget, measures no point twice, resumes after a kill, and reports why it ends."""

from dataclasses import replace

import pytest
from by_estimate import Estimates
from surface import Memory, Surface, space, task, true_s

from shardc.backends.tuning.point import Point
from shardc.backends.tuning.trial import Outcome, Trial
from shardc.diagnostics.tuner import EmptySpace, TaskNotTunable, UnknownStrategy
from shardc.tuner.cost_model.boosted_trees import BoostedTrees
from shardc.tuner.session import INTERRUPTED, LOOKS, Budget, Session, TuningInterrupted
from shardc.tuner.task_scheduler import Job

HEAVY, LIGHT = Job(task(512, 512, 512, "heavy"), 100), Job(task(64, 64, 64, "light"), 1)


def run(jobs=(HEAVY,), memory=None, measurer=None, **options):
    """The result, and what was measured, in order."""
    memory, measurer = memory or Memory(), measurer or Surface(space())
    options = {
        "budget": Budget(trials=64, regret=0.0),
        "model": Estimates(),
        "spaces": lambda _: space(),
    } | options
    return Session(memory, measurer, **options).tune(list(jobs)), measurer.calls


def fastest(of=None):
    return min((of or space()).points(), key=lambda p: true_s(p.config))


def test_trees_find_the_fastest_point_in_64_trials():
    result, calls = run(model=BoostedTrees(pretrained=None))
    found = true_s(result.tasks[0].chosen.config) / true_s(fastest().config)
    assert len(calls) == len(set(calls)) == result.trials == result.measured == 64
    assert found <= 1.03
    assert result.tasks[0].ratio == pytest.approx(
        true_s(result.tasks[0].chosen.config) / Surface(space()).default_s
    )
    assert result.stopped == "64 trials are spent"


def test_the_same_seed_measures_the_same_points():
    assert run(seed=3, model=BoostedTrees(None))[1] == run(seed=3, model=BoostedTrees(None))[1]
    assert run(seed=3)[1] != run(seed=4)[1]


@pytest.mark.parametrize("killed_after", [3, 8, 29])
def test_after_a_kill_the_rest_is_measured_as_if_there_had_been_none(killed_after):
    whole = run([HEAVY, LIGHT], model=BoostedTrees(None))
    memory, first = Memory(limit=killed_after), Surface(space())
    with pytest.raises(KeyboardInterrupt):
        run([HEAVY, LIGHT], memory, first, model=BoostedTrees(None))
    memory.left = None
    result, calls = run([HEAVY, LIGHT], memory, model=BoostedTrees(None))
    assert result.trials == 64 and result.measured == len(calls) == 64 - killed_after
    assert [t.chosen for t in result.tasks] == [t.chosen for t in whole[0].tasks]
    assert [c for c in whole[1] if c in set(calls)] == calls


class Interrupted(Surface):
    """Its user presses Ctrl-C while the point after ``left`` others is measured."""

    left = 12

    def measure(self, of, points):
        for point in points:
            if not self.left:
                raise KeyboardInterrupt
            self.left -= 1
            yield from super().measure(of, [point])


def test_an_interrupt_in_the_middle_of_a_round_loses_no_trial_and_has_a_result():
    whole, memory = run()[1], Memory()
    with pytest.raises(TuningInterrupted) as caught:
        run(memory=memory, measurer=Interrupted(space()))
    result = caught.value.result
    assert result.stopped == INTERRUPTED and result.trials == result.measured == 12
    assert [t.point for t in memory.trials(HEAVY.task)] == [p for _, p in whole[:12]], (
        "each as soon as it is known"
    )
    best = min(memory.trials(HEAVY.task), key=lambda t: t.ratio)
    assert (result.tasks[0].chosen, result.tasks[0].ratio) == (best.point, best.ratio)
    assert run(memory=memory)[1] == whole[12:]


def test_nothing_is_measured_again_and_more_trials_go_on():
    memory = Memory()
    run(memory=memory, budget=Budget(trials=24, regret=0.0))
    assert run(memory=memory, budget=Budget(trials=24, regret=0.0))[1] == []
    assert len(run(memory=memory, budget=Budget(trials=40, regret=0.0))[1]) == 16


def test_most_trials_go_to_where_the_step_s_time_is():
    result, calls = run([LIGHT, HEAVY])
    assert [t.job.task.label for t in result.tasks] == ["light", "heavy"]
    assert sum(t is HEAVY.task for t, _ in calls) > 48


def test_it_ends_when_going_on_is_not_expected_to_gain():
    result, calls = run(budget=Budget(regret=0.05), model=BoostedTrees(None))
    assert 8 < len(calls) < len(list(space().points()))
    assert result.regret < 0.05 and "less than 5.00%" in result.stopped
    assert true_s(result.tasks[0].chosen.config) <= 1.05 * true_s(fastest().config)


def test_failures_are_remembered_never_chosen_and_not_repeated():
    bad = frozenset(space().ranked(12))
    memory = Memory()
    result, _ = run(memory=memory, measurer=Surface(space(), bad), model=BoostedTrees(None))
    assert result.tasks[0].chosen not in bad
    crashed = [t for t in memory.trials(HEAVY.task) if t.outcome is Outcome.CRASHED]
    assert crashed and len({t.point for t in crashed}) == len(crashed)


@pytest.mark.parametrize("budget", [Budget(trials=0), Budget(seconds=0)])
def test_a_budget_of_zero_is_the_analytic_choice(budget):
    result, calls = run(budget=budget)
    assert calls == [] and result.tasks[0].chosen == space().ranked(1)[0]
    assert result.stopped == "a budget of zero: the analytic choice"


class Prefers:
    """A cost model that takes one point for the best."""

    def __init__(self, point):
        self.point = point

    def learn(self, of, space, trials):
        pass

    def scores(self, of, space, points):
        return [0.0 if p == self.point else 1.0 for p in points]


def test_a_budget_of_zero_follows_the_cost_model_and_a_user_s_point_comes_first():
    third = space().ranked(3)[2]
    assert run(budget=Budget(trials=0), model=Prefers(third))[0].tasks[0].chosen == third
    mine = Point.of("tiled", {"tile_m": 2, "tile_n": 2, "block_k": 2})
    constrained = run(budget=Budget(trials=0), model=Prefers(third), spaces=lambda _: space(added=(mine,)))
    assert constrained[0].tasks[0].chosen == mine


def test_pins_that_leave_nothing_are_said():
    result, calls = run(
        spaces=lambda _: space(pinned={"tile_m": 128, "tile_n": 128}), budget=Budget(trials=8)
    )
    assert calls == [] and "EmptySpace" in result.tasks[0].said


def test_seconds_end_it_between_rounds():
    clock = iter(range(1000))
    result, calls = run(budget=Budget(seconds=5, regret=0.0), now=lambda: next(clock))
    assert result.stopped == "5 s are spent" and 0 < len(calls) < 64


def test_a_small_space_is_searched_whole():
    small = space((1, 8, 32))
    result, calls = run(spaces=lambda _: small, measurer=Surface(small), budget=Budget(regret=0.0))
    assert {p for _, p in calls} == set(small.points())
    assert result.tasks[0].chosen == fastest(small) and result.stopped == "every point was tried"


def test_trials_that_are_no_points_any_more_are_ignored_and_said():
    memory = Memory()
    gone = Point.of("older", {"tile_m": 1})
    memory.record(HEAVY.task, [Trial(gone, Outcome.MEASURED, 0.01, 1e-6)])
    result, _ = run(memory=memory, budget=Budget(trials=8))
    assert result.tasks[0].chosen != gone
    assert result.tasks[0].said == "1 trials in the database no longer match this kernel's space: ignored"


def test_a_kernel_without_a_space_is_said_and_the_others_are_tuned():
    def spaces(of):
        if of is LIGHT.task:
            raise EmptySpace(sketches="none", pinned="{}")
        return space()

    result, calls = run([LIGHT, HEAVY], spaces=spaces)
    assert {t for t, _ in calls} == {HEAVY.task}
    assert "EmptySpace" in next(t for t in result.tasks if t.job is LIGHT).said


def test_a_kernel_whose_default_is_wrong_is_said_and_left():
    class Wrong(Surface):
        def measure(self, of, points):
            if of is HEAVY.task:
                raise TaskNotTunable(task=of.label, reason="wrong numbers")
            return super().measure(of, points)

    result, calls = run([LIGHT, HEAVY], measurer=Wrong(space()))
    assert "wrong numbers" in result.tasks[1].said and result.tasks[1].chosen == result.tasks[1].analytic
    assert len(calls) == 64


def test_points_for_a_gpu_that_is_not_here_are_ranked_by_models_and_spills():
    class Compiles(Surface):
        def measure(self, of, points):
            self.calls += [(of, p) for p in points]
            return [Trial(p, Outcome.BUILT, figures={"spill_bytes": 8 * (p == worst)}) for p in points]

    worst = space().ranked(1)[0]
    measurer = Compiles(space())
    result, calls = run(measurer=measurer, strategy="analytic", model=BoostedTrees(None))
    assert len(calls) == 16 and result.tasks[0].chosen == space().ranked(2)[1]


def test_similar_kernels_start_from_each_other_s_best():
    class Watched(Surface):
        """A kernel that is a thousand times faster at a point which nothing points to."""

        def _trial(self, point):
            trial = super()._trial(point)
            return replace(trial, ratio=1e-3, seconds=1e-3 * self.default_s) if point == odd else trial

    odd = Point.of("tiled", {"tile_m": 1, "tile_n": 128, "block_k": 128})
    of, start = space(), space((1, 128))
    measurer = Watched(of)
    spaces = {LIGHT.task: start, HEAVY.task: of}
    jobs = [replace(LIGHT, calls=1000), replace(HEAVY, calls=1)]
    measured = run(jobs, measurer=measurer, spaces=spaces.get, model=BoostedTrees(None))[1]
    first = [p for t, p in measured if t is HEAVY.task][:8]
    assert odd in first


def test_what_is_known_of_a_kernel_elsewhere_is_tried_first():
    odd = Point.of("tiled", {"tile_m": 1, "tile_n": 128, "block_k": 128})
    measured = run(hints=lambda of: [odd] if of is HEAVY.task else [], budget=Budget(trials=8))[1]
    assert measured[0] == (HEAVY.task, odd)


def test_events_tell_of_each_trial_and_of_each_round():
    events = []
    result, _ = run(on_round=events.append)
    rounds = [e for e in events if len(e.trials) == 8]
    assert [e.trials_done for e in rounds] == list(range(8, 65, 8))
    assert [e.trials_left for e in rounds] == list(range(56, -1, -8))
    assert sorted({e.trials_done for e in events}) == list(range(65)), "and the beginning of the first"
    ratios = [e.step_ratio for e in events]
    assert ratios == sorted(ratios, reverse=True) and ratios[-1] == pytest.approx(result.step_ratio)


def test_an_unknown_strategy_is_refused():
    with pytest.raises(UnknownStrategy):
        run(strategy="annealing")


def test_ratios_are_to_the_untuned_kernel_and_choices_within_the_pins():
    whole = space()
    pinned = replace(whole, pinned={"block_k": 1})
    begun = []

    class Watched(Surface):
        def begin(self, of, default, incumbent=None):
            begun.append(default)

    result, calls = run(measurer=Watched(whole), budget=Budget(trials=8), spaces=lambda _: pinned)
    assert begun == [None]
    assert calls and all(p.config["block_k"] == 1 for _, p in calls)
    chosen = result.tasks[0].chosen
    assert chosen is None or chosen.config["block_k"] == 1
    untried, _ = run(budget=Budget(trials=0), spaces=lambda _: pinned)
    assert untried.tasks[0].chosen == pinned.ranked(1)[0]


def test_where_nothing_is_faster_the_kernel_stays_as_it_is():
    class Slow(Surface):
        def _trial(self, point):
            return Trial(point, Outcome.MEASURED, 1.5, 1.5e-3)

    result, _ = run(measurer=Slow(space()), budget=Budget(trials=8))
    assert result.tasks[0].chosen is None and result.tasks[0].ratio == 1.0


def test_the_second_trial_of_a_point_counts_and_the_first_steers():
    memory = Memory()
    first, _ = run(memory=memory, budget=Budget(trials=16, regret=0.0))
    best = first.tasks[0].chosen
    memory.record(HEAVY.task, [Trial(best, Outcome.MEASURED, 5.0, 5e-3)])
    again, calls = run(memory=memory, budget=Budget(trials=16, regret=0.0))
    assert calls == [] and again.tasks[0].chosen != best


@pytest.mark.parametrize("outcome", [Outcome.CRASHED, Outcome.WRONG])
def test_what_fails_at_the_second_look_is_not_chosen_and_is_remembered(outcome):
    class Flaky(Surface):
        def confirm(self, of, point):
            return Trial(point, outcome, said="only now") if point == best else super().confirm(of, point)

    best = run(budget=Budget(trials=16, regret=0.0))[0].tasks[0].chosen
    memory = Memory()
    result, calls = run(memory=memory, measurer=Flaky(space()), budget=Budget(trials=16, regret=0.0))
    others = [p for _, p in calls if p != best]
    assert result.tasks[0].chosen == min(others, key=lambda p: true_s(p.config))
    assert [t.outcome for t in memory.trials(HEAVY.task) if t.point == best] == [Outcome.MEASURED, outcome]
    again, calls = run(memory=memory, budget=Budget(trials=16, regret=0.0))
    assert calls == [] and again.tasks[0].chosen == result.tasks[0].chosen


def test_what_a_session_chooses_is_what_its_database_has_for_the_next_compile():
    class Lucky(Surface):
        looks = 0

        def confirm(self, of, point):
            self.looks += 1
            trial = super().confirm(of, point)
            return replace(trial, ratio=1.2 * trial.ratio)

    memory, measurer = Memory(), Lucky(space())
    result, _ = run(memory=memory, measurer=measurer, budget=Budget(trials=32, regret=0.0))
    latest = {t.point: t for t in memory.trials(HEAVY.task)}
    best = min(latest.values(), key=lambda t: (t.ratio, t.point))
    assert (result.tasks[0].chosen, result.tasks[0].ratio) == (best.point, best.ratio)
    assert 1 < measurer.looks <= LOOKS, "what is no longer the best leaves its place"


def test_a_budget_of_zero_says_the_times_that_are_known():
    memory = Memory()
    before, _ = run(memory=memory, budget=Budget(trials=16, regret=0.0))
    result, _ = run(memory=memory, budget=Budget(trials=0))
    assert result.tasks[0].ratio == before.tasks[0].ratio and result.tasks[0].default_s == pytest.approx(
        before.tasks[0].default_s
    )


def test_a_second_look_that_is_not_possible_loses_no_result():
    class Lost(Surface):
        def confirm(self, of, point):
            raise TaskNotTunable(task=of.label, reason="no reference any more")

    result, calls = run(measurer=Lost(space()), budget=Budget(trials=16))
    fastest_ = min((p for _, p in calls), key=lambda p: true_s(p.config))
    assert result.tasks[0].chosen == fastest_ and "no reference any more" in result.tasks[0].said

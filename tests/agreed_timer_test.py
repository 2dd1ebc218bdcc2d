"""The timer that ranks agree on: how often a rank asks for rank 0's time, and when it is time to save."""

import pytest

import harness  # noqa: F401 - quiets TensorFlow
from sparse_operation_kit.saver import agreed_timer

SECONDS = 60.0


class Clock:
    """A replacement of the module `time`."""

    def __init__(self):
        self.now = 1000.0

    def time(self):
        return self.now


class Session:
    """Gives all ranks the first rank's value: this rank's, unless there is `of_another`."""

    def __init__(self, of_another=None):
        self.looks = 0
        self._of_another = of_another

    def run(self, fetch, feed):
        self.looks += 1
        (words,) = feed.values()
        return _Words(self._of_another or words)


class _Words(list):
    def tolist(self):
        return list(self)


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(agreed_timer, "time", clock)
    return clock


def _train(timer, session, clock, steps, seconds_per_step, first=0):
    """Returns the steps at which it was time to save."""
    saved = []
    for step in range(first + 1, first + steps + 1):
        clock.now += seconds_per_step
        if timer.look(session, step):
            saved.append(step)
            timer.update_last_triggered_step(step)
    return saved


def _timer():
    timer = agreed_timer.AgreedTimer(SECONDS, ("words", "of the first rank"))
    timer.update_last_triggered_step(0)
    return timer


@pytest.mark.parametrize("seconds_per_step", [0.01, 0.5, 7.0, 100.0])
def test_saves_after_the_given_seconds(clock, seconds_per_step):
    steps = max(1, round(SECONDS / seconds_per_step))
    session = Session()
    saved = _train(_timer(), session, clock, 5 * steps, seconds_per_step)
    assert 4 <= len(saved) <= 5
    for before, after in zip([0, *saved], saved):
        assert steps <= after - before <= steps + 1000
        assert seconds_per_step * (after - before) <= SECONDS * 1.2 + 2 * seconds_per_step


def test_ranks_seldom_ask_for_rank_0s_time(clock):
    session = Session()
    _train(_timer(), session, clock, 60_000, 0.001)
    assert session.looks <= 65


def test_training_that_slows_down(clock):
    timer, session = _timer(), Session()
    assert _train(timer, session, clock, 100, 0.01) == []
    saved = _train(timer, session, clock, 3000, 1.0, first=100)
    assert 1000 <= saved[0] <= 1101  # not before the step that was agreed on
    assert all(60 <= after - before <= 70 for before, after in zip(saved, saved[1:]))


def test_a_step_is_not_saved_twice(clock):
    timer, session = _timer(), Session()
    clock.now += 2 * SECONDS
    assert timer.look(session, 1)
    assert timer.update_last_triggered_step(1) == (2 * SECONDS, 1)
    clock.now += 2 * SECONDS
    assert not timer.look(session, 1)
    assert timer.last_triggered_step() == 1


def test_the_first_save_is_due_at_once(clock):
    timer = agreed_timer.AgreedTimer(SECONDS, ("words", "of the first rank"))
    assert timer.last_triggered_step() is None
    assert timer.look(Session(), 5)
    assert timer.update_last_triggered_step(5) == (None, None)


def test_the_first_ranks_clock_decides(clock):
    timer = _timer()
    assert timer.look(Session(of_another=[1, 7]), 1)
    assert timer.next_look == 7
    clock.now += 2 * SECONDS
    assert not timer.look(Session(of_another=[0, 9]), 7)
    assert timer.next_look == 9
    assert not timer.look(Session(of_another=[1, 10]), 8)
    assert timer.look(Session(of_another=[1, 10]), 9)

"""Block time under a fake monotonic clock: smooth, never backwards, and alive without the chain."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subnet.chain.clock import BlockClock, ChainUnreachable, Extrapolation


class Time:
    """A monotonic clock that only sleeping advances; `events` happen when it passes their time."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.events: list[tuple[float, object]] = []

    def __call__(self) -> float:
        return self.now

    def at(self, seconds: float, action: object) -> None:
        self.events.append((1000.0 + seconds, action))
        self.events.sort(key=lambda event: event[0])

    async def sleep(self, seconds: float) -> None:
        target = self.now + seconds
        while self.events and self.events[0][0] <= target:
            self.now, action = self.events.pop(0)
            action()  # type: ignore[operator]
        self.now = target
        await asyncio.sleep(0)


def test_follows_heads_and_goes_on_without_them() -> None:
    height = Extrapolation(10, 0.0, 12.0)
    assert height.at(6.0) == 10.5
    height.observe(11, 12.0)
    assert height.at(12.0) == 11.0
    assert height.at(12.0 + 120.0) == pytest.approx(21.0)


def test_a_jump_ahead_is_adopted_at_once() -> None:
    height = Extrapolation(10, 0.0, 12.0)
    height.observe(50, 24.0)
    assert height.at(24.0) == 50.0


def test_catching_up_goes_at_half_speed() -> None:
    height = Extrapolation(10, 0.0, 1.0)
    assert height.at(10.0) == 20.0
    height.observe(12, 10.0)  # the chain stood still for eight blocks
    pace = height.block_time
    assert height.at(10.0) == 20.0
    assert height.at(10.0 + 4 * pace) == pytest.approx(22.0)
    assert height.at(10.0 + 16 * pace) == pytest.approx(28.0)
    assert height.at(10.0 + 20 * pace) == pytest.approx(32.0), "in step with the chain again"


def test_late_and_repeated_heads_change_nothing() -> None:
    height = Extrapolation(10, 0.0, 1.0)
    height.observe(9, 0.5)
    height.observe(10, 0.7)
    assert (height.head, height.block_time, height.at(0.7)) == (10, 1.0, 0.7 + 10)


def test_block_time_follows_the_chain_but_not_its_outliers() -> None:
    height = Extrapolation(0, 0.0, 1.0)
    for number in range(1, 200):
        height.observe(number, number * 1.5)
    assert height.block_time == pytest.approx(1.5, rel=0.01)
    # Ten heads held up for fifteen seconds and then handed over at once say nothing new either.
    for number in range(200, 210):
        height.observe(number, 209 * 1.5)
    for number in range(210, 280):
        height.observe(number, number * 1.5)
        assert height.block_time == pytest.approx(1.5, rel=0.2)
    assert height.block_time == pytest.approx(1.5, rel=0.01)
    height.observe(280, 279 * 1.5 + 3600.0)
    assert height.block_time < 1.7


def test_block_time_must_be_positive() -> None:
    with pytest.raises(ValueError, match="positive"):
        Extrapolation(1, 0.0, 0.0)


steps = st.lists(st.tuples(st.floats(0.0, 30.0), st.integers(-3, 5)), max_size=40)


@settings(max_examples=60, deadline=None)
@given(steps=steps)
def test_never_backwards_and_time_of_is_its_inverse(steps: list[tuple[float, int]]) -> None:
    height, now, last = Extrapolation(100, 0.0, 2.0), 0.0, 100.0
    for pause, advance in steps:
        now += pause
        assert height.at(now) >= last
        height.observe(height.head + advance, now)
        last = height.at(now)
        target = last + 3.7
        assert height.at(now + height.time_of(target, now)) == pytest.approx(target, abs=1e-6)
        assert height.time_of(last, now) == 0.0


def clock(time: Time, hashes: dict[int, bytes] | None = None, number: int = 10) -> BlockClock:
    async def block_hash(block: int) -> bytes | None:
        if hashes is None:
            raise ChainUnreachable("gone")
        return hashes.get(block)

    return BlockClock(number, 2.0, block_hash, monotonic=time, sleep=time.sleep)


def test_wait_until_needs_no_chain() -> None:
    time = Time()
    waiting = clock(time)
    asyncio.run(waiting.wait_until(15.0))
    assert time.now == pytest.approx(1010.0) and waiting.block() == pytest.approx(15.0)


def test_wait_until_follows_heads_that_come_early() -> None:
    time = Time()
    waiting = clock(time)
    time.at(3.0, lambda: waiting.observe(14))
    asyncio.run(waiting.wait_until(15.0))
    assert time.now < 1006.0


def test_hash_of_waits_for_the_block() -> None:
    time = Time()
    hashes: dict[int, bytes] = {}
    waiting = clock(time, hashes)
    time.at(7.0, lambda: hashes.update({13: b"h" * 32}))  # a second after it was due
    assert asyncio.run(waiting.hash_of(13)) == b"h" * 32
    assert 1007.0 <= time.now <= 1008.0


def test_hash_of_gives_up_in_time() -> None:
    for hashes, reason in ((None, "gone"), ({}, "did not appear")):
        time = Time()
        with pytest.raises(ChainUnreachable, match=f"block 13.*{reason}"):
            asyncio.run(clock(time, hashes).hash_of(13))
        assert time.now == pytest.approx(1000.0 + 6.0 + 2 * 2.0 + 3.0)
    with pytest.raises(ChainUnreachable):
        asyncio.run(clock(Time()).hash_of(13, timeout=0.0))

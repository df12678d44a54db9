"""When weights are set: once a tempo; after a failure again, with what they then are."""

from __future__ import annotations

import asyncio

from subnet.chain.client import WeightsOutcome
from subnet.validator.pay import Attempt, Paymaster

TEMPO = 360
SET = WeightsOutcome(True)
DOWN = WeightsOutcome(False, wait_blocks=4)


class Chain:
    """A clock that moves only when somebody waits, and what the chain says to each attempt."""

    def __init__(self, *outcomes: WeightsOutcome, block: float = 1000.0, stops_at: float = float("inf")) -> None:
        self.outcomes = list(outcomes)
        self.now, self.stops_at = block, stops_at
        self.sent: list[tuple[float, dict[int, float]]] = []
        self.paymaster = Paymaster(self.send, lambda: self.now, self.wait_for)

    async def send(self, weights: dict[int, float]) -> WeightsOutcome:
        self.sent.append((self.now, weights))
        return self.outcomes.pop(0)

    async def wait_for(self, block: float) -> bool:
        self.now = min(block, self.stops_at)
        return block < self.stops_at

    def pay(self, weights: dict[int, float], until: float) -> Attempt | None:
        return asyncio.run(self.paymaster.pay(lambda: dict(weights), TEMPO, until))


def test_weights_are_set_once_a_tempo() -> None:
    chain = Chain(SET, SET)
    last = chain.pay({1: 1.0}, 1060)
    assert last is not None and last.outcome.ok and last.weights == {1: 1.0}
    for until in range(1120, 1360, 60):
        assert chain.pay({1: 1.0}, until) is None
    assert chain.pay({2: 1.0}, 1380) is not None
    assert chain.sent == [(1000, {1: 1.0}), (1360, {2: 1.0})]


def test_with_the_rpc_down_they_are_sent_later_as_they_then_are() -> None:
    chain = Chain(*[DOWN] * 15, DOWN, SET)
    last = chain.pay({1: 1.0}, 1060)
    assert last is not None and not last.outcome.ok
    assert [block for block, _ in chain.sent] == list(range(1000, 1060, 4))
    later = chain.pay({1: 0.5, 2: 0.5}, 1120)
    assert later is not None and later.outcome.ok
    assert chain.sent[-1] == (1064, {1: 0.5, 2: 0.5})
    assert chain.paymaster.due == 1064 + TEMPO


def test_too_early_is_tried_again_when_the_chain_says_so() -> None:
    chain = Chain(WeightsOutcome(False, wait_blocks=37), SET)
    chain.pay({1: 1.0}, 1060)
    assert [block for block, _ in chain.sent] == [1000, 1037]


def test_what_is_refused_is_not_repeated_in_the_same_round() -> None:
    chain = Chain(WeightsOutcome(False, refused="not enough stake"), SET)
    last = chain.pay({1: 1.0}, 1060)
    assert last is not None and last.outcome.refused and len(chain.sent) == 1
    assert chain.pay({1: 1.0}, 1120) is not None and chain.sent[-1][0] == 1060


def test_without_anybody_to_pay_nothing_is_sent_and_a_neuron_that_stops_sends_nothing() -> None:
    assert Chain().pay({}, 1060) is None
    chain = Chain(DOWN, stops_at=1002)
    last = chain.pay({1: 1.0}, 1060)
    assert last is not None and len(chain.sent) == 1

"""Whether a peer trains on the data it is assigned: the running odds of that, from each round's excess on its own data.

Not the measurement (`loss.excess`). A sequential probability ratio test (Wald, 1945) between "trained on it" and "did
not", where what training gives is taken from the peers of the round themselves: it shrinks as a model learns.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from subnet.scoring.loss import LossScore

STEP = 3.0
"""Most that one round can say, in log odds: 20 to 1."""
SURE = 6.0
"""Log odds are kept within this (400 to 1), so that who changes is noticed within a few rounds."""
PASSED = 3.0
"""From these log odds on a peer counts as trained on its own data (95 %), and from the negative as not trained."""


def probability(odds: float) -> float:
    """That a peer trains on its own data, from log odds: 1/2 for a newcomer. 0 for who failed the test."""
    return 0.0 if odds <= -PASSED else 1.0 / (1.0 + math.exp(-odds))


def reference(losses: Mapping[str, LossScore], odds: Mapping[str, float]) -> tuple[float, float]:
    """(what training on one's data gives in this round, nats a token; how sure the round is of that, 0..1).

    The first is the median m of all excesses, each weighing what its owner is trusted: of a weighted median no minority
    can be the judge, however much it overfits, and known cheats weigh nothing. The second is 1 - e/m, with e the
    median's own standard error (1.25 se/sqrt(n)). (0, 0) where m is not above e: the round cannot tell.
    """
    known = [(loss.excess, loss.excess_se, probability(odds.get(h, 0.0))) for h, loss in losses.items()
             if math.isfinite(loss.excess_se)]  # fmt: skip
    trusted = sum(weight for *_, weight in known)
    if trusted <= 0:
        return 0.0, 0.0
    middle = _weighted_median([(x, weight) for x, _, weight in known])
    error = 1.25 * _weighted_median([(se, weight) for _, se, weight in known]) / math.sqrt(max(1.0, trusted))
    return (middle, 1 - error / middle) if middle > error else (0.0, 0.0)


def update(odds: Mapping[str, float], losses: Mapping[str, LossScore]) -> dict[str, float]:
    """Log odds after one round, of the hotkeys in `losses`; before their first they are 0.

    With (m, c) the `reference`, x +- s a peer's excess, both hypotheses Gaussian around m and 0 with variance
    v = s^2 + (m/2)^2 (honest peers spread by about half of m besides the error):

        log odds += c (m x - m^2/2) / v        at most `STEP` either way
    """
    m, sure = reference(losses, odds)
    after = {}
    for hotkey, loss in losses.items():
        before = odds.get(hotkey, 0.0)
        variance = loss.excess_se**2 + (m / 2) ** 2
        step = sure * (m * loss.excess - m * m / 2) / variance if m > 0 and math.isfinite(variance) else 0.0
        after[hotkey] = min(SURE, max(-SURE, before + min(STEP, max(-STEP, step))))
    return after


def _weighted_median(pairs: list[tuple[float, float]]) -> float:
    """The lower median of (value, weight); the weights' sum must be above 0."""
    half = math.fsum(weight for _, weight in pairs) / 2
    passed = 0.0
    for value, weight in sorted(pairs):
        passed += weight
        if passed >= half:
            return value
    return max(value for value, _ in pairs)

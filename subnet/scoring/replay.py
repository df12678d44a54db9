"""The replay audit in numbers: who is audited, which step, what a repetition may differ by, and what cheating pays.

Not the repetition itself (`subnet.validator.replay`). That a random check with a lasting penalty makes work the better
choice is Becker's argument (J. Political Economy 76, 1968); the bounds are calibrated in docs/replay.md.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

LOSS_GAP = 0.01
"""Nats a token that a step's loss may differ by on other hardware: several times what was measured (docs/replay.md)."""
DISTANCE = 0.1
"""How far apart, as a share of how far they moved, the parameters may end: the same."""
NOT_SHOWN = "its steps are not shown"
PROBES = 16
"""Leaves of the parameters that are compared at the end of a segment."""


@dataclass(frozen=True)
class Finding:
    """Of one audit. `passed`: None where nothing can be said; `why` it did not pass, a short fixed reason.

    `exact`: the repetition came out bit for bit. `loss_gap`: the largest difference of a step's loss, nats a token;
    `distance`: between the ends, as a share of the way; both NaN where it did not come to that.
    """

    passed: bool | None
    why: str = ""
    exact: bool = False
    loss_gap: float = math.nan
    distance: float = math.nan

    def __str__(self) -> str:
        said = {True: "passed", False: "failed", None: "nothing can be said"}[self.passed]
        if self.why:
            said += f", {self.why}"
        if self.exact:
            said += ", bit for bit"
        elif not math.isnan(self.distance):
            said += f" (loss gap {self.loss_gap:.2g}, distance {self.distance:.2g})"
        return said


def drawn(beacon: bytes, hotkey: str, rate: float) -> bool:
    """Whether a contribution is audited, with probability `rate`, by the hash of a block after it was committed."""
    return _number(beacon, hotkey, b"who") < int(rate * 2**64)


def step_of(beacon: bytes, hotkey: str, steps: int) -> int:
    """Which of the steps is audited; each is as likely."""
    return _number(beacon, hotkey, b"step") * steps >> 64


def probes_of(beacon: bytes, hotkey: str, leaves: int) -> list[int]:
    """The leaves that are compared at the end: at most `PROBES` of that many, sorted."""
    found = {_number(beacon, hotkey, b"leaf%d" % i) * leaves >> 64 for i in range(PROBES)}
    return sorted(found)


def compared(committed: Sequence[float], repeated: Sequence[float], distance: float, exact: bool = False) -> Finding:
    """What follows from a segment's losses as they were committed and as they came out, and from where it ended.

    Losses in nats a token, NaN for a step that was left out: in both or in none.
    """
    pairs = list(zip(committed, repeated, strict=True))
    if any(math.isnan(a) != math.isnan(b) for a, b in pairs):
        return Finding(False, "steps left out that can be done", exact, math.inf, distance)
    gap = max((abs(a - b) for a, b in pairs if not math.isnan(a)), default=0.0)
    if not gap <= LOSS_GAP:
        return Finding(False, "losses are not those of its steps", exact, gap, distance)
    if not distance <= DISTANCE:
        return Finding(False, "steps do not lead where it says", exact, gap, distance)
    return Finding(True, "", exact, gap, distance)


def caught(done: float, rate: float) -> float:
    """Probability to be found out in one round, of who did the share `done` of the steps it declares.

    Whatever steps are left out, the audited one is among them with 1 - done; at least, since its whole segment counts.
    """
    return rate * (1.0 - done)


def profit(done: float, paid: float, cost: float, rate: float, penalty: float) -> float:
    """Mean profit per round over a long time, in units of what honest full work is paid; honest work has 1 - cost.

    `paid`: what the loss score pays for the contribution, between `done` and 1. `cost`: of the full work (0..1), which
    scales with the work done. A round that is caught is followed by `penalty` rounds without pay, and without work:

        (paid - cost * done) / (1 + caught * penalty)

    Even if the loss score saw nothing (paid = 1), that is at most 1 - cost if rate * penalty >= cost / (1 - cost).
    """
    return (paid - cost * done) / (1.0 + caught(done, rate) * penalty)


def dearest(rate: float, penalty: float) -> float:
    """Up to which cost of the work, as a share of its pay, leaving out steps is worse than doing them, whatever the
    loss score sees: x / (1 + x), x = rate * penalty."""
    return rate * penalty / (1.0 + rate * penalty)


def _number(beacon: bytes, hotkey: str, what: bytes) -> int:
    data = len(beacon).to_bytes(4, "big") + beacon + hotkey.encode()
    return int.from_bytes(hashlib.blake2b(data, digest_size=8, key=what, person=b"sn38/replay").digest(), "big")

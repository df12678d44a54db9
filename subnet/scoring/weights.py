"""Weights: the score table as the chain wants it, uid -> share of the pay.

Not the setting of weights (rate limits, quantisation and commit-reveal are the SDK's, see `subnet.chain`), only
the pure function before it. Gauntlet (arXiv:2505.21684) pays for ratings likewise, times how well a peer follows.

What splitting one machine over k hotkeys gains: a k-th of the work each is paid for a k-th of the evidence, and ranks
last, so that in the end it earns nothing (tests/scoring). k full-strength *copies* would earn k shares: finding
near-copies is the validator's to do before it observes, not this table's.
"""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from subnet.scoring.table import Row, ScoreTable

if TYPE_CHECKING:
    from subnet.config import ScoringConfig


def score(row: Row, cfg: "ScoringConfig") -> float:
    """One hotkey's score, at least 0, in rating points:

    evidence * max(0, mu - rating_z * sigma) * participation * digest,   0 while evidence < min_evidence

    Evidence is the averaged share of the best loss drop, and the gate against free-riders: contributions of zeros
    or noise, whose rating alone would start well above 0. `rating_z` discounts what is uncertain: 1 pays newcomers
    at two thirds of the prior, 3 (openskill's ordinal) would pay them nothing for some thirty rounds.
    """
    if row.evidence.value < cfg.min_evidence:
        return 0.0
    skill = max(0.0, row.rating.mu - cfg.rating_z * row.rating.sigma)
    return row.evidence.value * skill * row.participation.value * row.digest.value


def weights(
    table: ScoreTable, hotkey_to_uid: Mapping[str, int], cfg: "ScoringConfig", owner_uid: int | None
) -> dict[int, float]:
    """uid -> weight of every uid that is paid: positive, summing to 1 (to rounding), or empty when nobody is.

    Shares are proportional to `score` over the hotkeys registered in `hotkey_to_uid`; rows of others count for
    nothing. `cfg.burn` goes to `owner_uid` on top of what it earned itself; without an earner the owner gets all
    when anything is burned, and without an owner (None) nothing is. Independent of the order of both tables.
    Raises ValueError when two hotkeys claim one uid.
    """
    if len(set(hotkey_to_uid.values())) != len(hotkey_to_uid):
        raise ValueError("two hotkeys share a uid: the metagraph is inconsistent")
    scores = {uid: score(table.rows[hotkey], cfg) for hotkey, uid in hotkey_to_uid.items() if hotkey in table.rows}
    total = math.fsum(scores.values())
    burn = cfg.burn if owner_uid is not None else 0.0
    if total <= 0:
        return {owner_uid: 1.0} if owner_uid is not None and burn > 0 else {}
    paid = {uid: (1 - burn) * value / total for uid, value in sorted(scores.items())}
    if owner_uid is not None:
        paid[owner_uid] = paid.get(owner_uid, 0.0) + burn
    return {uid: share for uid, share in sorted(paid.items()) if share > 0}

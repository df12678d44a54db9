"""Weights: the score table as the chain wants it, uid -> share of the pay.

Not the setting of weights (rate limits, quantisation and commit-reveal are the SDK's, see `subnet.chain`), only
the pure function before it. Pay follows work; ratings and odds only say whose work counts. Gauntlet (arXiv:2505.21684)
pays for the ratings themselves, so that an honest machine that is always the slowest fades to nothing.
"""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from subnet.scoring.ratings import Rating, beats
from subnet.scoring.table import Row, ScoreTable
from subnet.scoring.trained import probability

if TYPE_CHECKING:
    from subnet.config import ScoringConfig


def score(row: Row, nothing: Rating, cfg: "ScoringConfig") -> float:
    """One hotkey's score, 0..1:

        evidence * trained * gate * participation * digest        0 while evidence < min_evidence

    `evidence` is the average work shown, and proportional to it. `trained` is the probability that it trains on its
    own data. `gate` = min(1, 4 P - 2), with P the probability that its rating beats `nothing`: 0 for zeros and for
    noise, 1 from P = 3/4 on, wherever among the honest it ranks.
    """
    if row.evidence.value < cfg.min_evidence:
        return 0.0
    gate = min(1.0, max(0.0, 4 * beats(row.rating, nothing, cfg.openskill_beta) - 2))
    return row.evidence.value * probability(row.trained) * gate * row.participation.value * row.digest.value


def weights(
    table: ScoreTable, hotkey_to_uid: Mapping[str, int], cfg: "ScoringConfig", owner_uid: int | None
) -> dict[int, float]:
    """uid -> weight of every uid that is paid: positive, summing to 1 (to rounding), or empty when nobody is.

    Shares are proportional to `score` over the hotkeys registered in `hotkey_to_uid`; rows of others count for
    nothing, and neither do those barred for a failed audit (`Row.barred_until`). `cfg.burn` goes to `owner_uid` on top
    of what it earned itself; without an earner the owner gets all when anything is burned, and without an owner (None)
    nothing is. Independent of the order of both tables.
    Raises ValueError when two hotkeys claim one uid.
    """
    if len(set(hotkey_to_uid.values())) != len(hotkey_to_uid):
        raise ValueError("two hotkeys share a uid: the metagraph is inconsistent")
    rows = {uid: table.rows[hotkey] for hotkey, uid in hotkey_to_uid.items() if hotkey in table.rows}
    paid_now = {uid: row for uid, row in rows.items() if row.barred_until < max(0, table.round)}
    scores = {uid: score(row, table.nothing, cfg) for uid, row in paid_now.items()}
    total = math.fsum(scores.values())
    burn = cfg.burn if owner_uid is not None else 0.0
    if total <= 0:
        return {owner_uid: 1.0} if owner_uid is not None and burn > 0 else {}
    paid = {uid: (1 - burn) * value / total for uid, value in sorted(scores.items())}
    if owner_uid is not None:
        paid[owner_uid] = paid.get(owner_uid, 0.0) + burn
    return {uid: share for uid, share in sorted(paid.items()) if share > 0}

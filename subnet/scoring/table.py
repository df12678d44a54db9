"""The score table: what a validator has learnt of every hotkey, one row each.

Not a measurement (see `loss`) and not the pay (see `weights`): it folds a round's observations into ratings and
moving averages, as a pure function. `document` keeps it as JSON between runs.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from subnet.scoring import ratings, trained
from subnet.scoring.loss import LossScore
from subnet.scoring.ratings import NOTHING, Rating

if TYPE_CHECKING:
    from subnet.config import ScoringConfig

MAX_ROWS = 4096
"""Most hotkeys a table holds: sixteen generations of a full subnet of 256."""
FORGET_ROUNDS = 512
"""Rounds without a sign of life after which a row is dropped; its evidence has long decayed by then."""
WORK_EXPONENT = 1.25
"""Work from loss drops: half of the inner steps give 0.57 of the drop in the mean (measured: docs/scoring.md), and
0.57^1.25 = 0.5. Pay is then at most proportional to work, and splitting one machine over hotkeys gains nothing."""


class Average(NamedTuple):
    """A bias-corrected exponential moving average (Adam's, arXiv:1412.6980 section 3): value / weight.

    The first sample counts in full, so a newcomer is not held down by a start at zero. No sample reads as 0.
    """

    total: float = 0.0
    weight: float = 0.0

    def add(self, sample: float, decay: float) -> "Average":
        return Average(decay * self.total + (1 - decay) * sample, decay * self.weight + (1 - decay))

    @property
    def value(self) -> float:
        return self.total / self.weight if self.weight > 0 else 0.0


@dataclass(frozen=True)
class Observation:
    """What one round showed of one hotkey. `loss` is None when its contribution was not evaluated this round.

    `participation`: 0..1, the share of its part in the exchange that it did; None when nothing can be said of that.
    `digest_ok`: its state digest is right. `tokens`: trained, as it declared. `twins`: the others of this round whose
    contribution is nearly the same. `stale`: it is made of the last round's contributions. `replayed`: whether its
    inner steps came out as committed when they were audited; None when they were not. `faulty`: what it signed for as
    a reducer is proven wrong.
    """

    loss: LossScore | None
    participation: float | None
    digest_ok: bool
    tokens: int = 1
    twins: frozenset[str] = frozenset()
    stale: bool = False
    replayed: bool | None = None
    faulty: bool = False

    def __post_init__(self) -> None:
        if self.participation is not None and not 0 <= self.participation <= 1:
            raise ValueError(f"participation must be between 0 and 1, got {self.participation}")


@dataclass(frozen=True)
class Row:
    """One hotkey: its rating, three averages in 0..1, the odds that it trains, and the last round it was seen in.

    `evidence` averages the work that each evaluated contribution shows (`evidence_of`). `trained`: log odds that it
    trains on its own data (`trained.update`). `barred_until`: the last round it is not paid in, for what was proven.
    """

    rating: Rating = field(default_factory=Rating)
    evidence: Average = field(default_factory=Average)
    participation: Average = field(default_factory=Average)
    digest: Average = field(default_factory=Average)
    trained: float = 0.0
    last_round: int = -1
    barred_until: int = -1


@dataclass(frozen=True)
class ScoreTable:
    """hotkey -> Row, the last round that was folded in (-1 before the first), and the rating of doing `nothing`."""

    rows: Mapping[str, Row] = field(default_factory=dict)
    round: int = -1
    nothing: Rating = field(default_factory=Rating)


def evidence_of(seen: Mapping[str, Observation], odds: Mapping[str, float], evident_z: float) -> dict[str, float]:
    """hotkey -> work shown in one round, 0..1, of all whose loss was measured:

        min( (held_out / best)^WORK_EXPONENT, tokens / typical tokens, 1 ) * share      0 if not evident, or void

    Void is what is stale, or was audited and not trained as declared.
    Against the round's best evident drop and not the median, so that a crowd of near-nothings cannot make itself the
    norm; of those not known to train on other data than theirs (`odds` at least 0), if there are such. Typical is the
    median of the same. The tokens bound who declares a few steps, trains those, and adds somebody's contribution:
    own data is sampled from what was declared. A ratio within a round has no scale that could drift.

    `share` is 1 without twins. A group of near-copies is paid as one, divided by how probable it is of each that it
    trained on its own data: on the same bytes at most one did.
    """
    losses = {hotkey: o.loss for hotkey, o in seen.items() if o.loss is not None}
    void = {hotkey for hotkey, o in seen.items() if o.stale or o.replayed is False}
    evident = {h: loss.held_out for h, loss in losses.items() if loss.evident(evident_z) and h not in void}
    trusted = [hotkey for hotkey in evident if odds.get(hotkey, 0.0) >= 0] or list(evident)
    best = max((evident[hotkey] for hotkey in trusted), default=0.0)
    typical = sorted(seen[hotkey].tokens for hotkey in trusted)[len(trusted) // 2] if trusted else 1
    work = dict.fromkeys(losses, 0.0)
    for hotkey, drop in evident.items():
        done = min((drop / best) ** WORK_EXPONENT, seen[hotkey].tokens / typical, 1.0)
        work[hotkey] = done * _share(hotkey, seen[hotkey].twins & evident.keys(), odds)
    return work


def observe(
    table: ScoreTable, round_index: int, observations: Mapping[str, Observation], cfg: "ScoringConfig"
) -> ScoreTable:
    """`table` after one round. Independent of the order of `observations`; `table` itself is not changed.

    Evaluated hotkeys play one match on their held-out drops, with `NOTHING` among them, add to their evidence and to
    the odds that they train on their own data. Hotkeys present but not evaluated (a validator may sample) keep all
    that. A hotkey of the table that is absent adds a 0 to the three averages: its pay fades with each of them and
    stops once evidence is below `cfg.min_evidence`. Rounds the validator itself missed change nothing. Raises
    ValueError when the round is not after the last one (a repeated round would count twice) and when the table would
    pass MAX_ROWS.
    """
    if round_index <= table.round:
        raise ValueError(f"round {round_index} is not after round {table.round}, the last one in the table")
    losses = {hotkey: seen.loss for hotkey, seen in sorted(observations.items()) if seen.loss is not None}
    odds = {hotkey: row.trained for hotkey, row in table.rows.items()}
    odds_after = trained.update(odds, losses)
    evidence = evidence_of(observations, odds, cfg.evident_z)
    rated = _match(table, observations, losses, cfg)
    rows = {}
    for hotkey in sorted(table.rows.keys() | observations.keys()):
        row = table.rows.get(hotkey, Row())
        row = _fold(row, observations.get(hotkey), evidence.get(hotkey), round_index, cfg)
        if round_index - row.last_round <= FORGET_ROUNDS:
            rating, known = rated.get(hotkey, row.rating), odds_after.get(hotkey, row.trained)
            rows[hotkey] = replace(row, rating=rating, trained=known)
    if len(rows) > MAX_ROWS:
        raise ValueError(f"{len(rows)} hotkeys in the score table, at most {MAX_ROWS} are kept")
    return ScoreTable(rows, round_index, rated[NOTHING])


def _match(
    table: ScoreTable, observations: Mapping[str, Observation], losses: Mapping[str, LossScore], cfg: "ScoringConfig"
) -> dict[str, Rating]:
    """Ratings after the round's match; what is stale counts as nothing."""
    before = {hotkey: row.rating for hotkey, row in table.rows.items()} | {NOTHING: table.nothing}
    if not losses:
        return before
    drops = {hotkey: 0.0 if observations[hotkey].stale else loss.held_out for hotkey, loss in losses.items()}
    return ratings.update(before, drops | {NOTHING: 0.0}, cfg.openskill_beta, cfg.openskill_tau)


def _share(hotkey: str, twins: frozenset[str], odds: Mapping[str, float]) -> float:
    """What of a group's one pay goes to one of them."""
    if not twins:
        return 1.0
    known = {h: trained.probability(odds.get(h, 0.0)) for h in {hotkey, *twins}}
    total = math.fsum(known.values())
    return known[hotkey] / total if total > 0 else 1.0 / len(known)


def _fold(row: Row, seen: Observation | None, evidence: float | None, round_index: int, cfg: "ScoringConfig") -> Row:
    decay = cfg.evidence_decay
    if seen is None:
        faded = {name: getattr(row, name).add(0.0, decay) for name in ("evidence", "participation", "digest")}
        return replace(row, **faded)
    return replace(
        row,
        evidence=row.evidence if evidence is None else row.evidence.add(evidence, decay),
        participation=row.participation
        if seen.participation is None
        else row.participation.add(seen.participation, decay),
        digest=row.digest.add(float(seen.digest_ok), decay),
        last_round=round_index,
        barred_until=round_index + cfg.replay_penalty if seen.faulty or seen.replayed is False else row.barred_until,
    )

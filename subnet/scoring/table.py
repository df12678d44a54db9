"""The score table: what a validator has learnt of every hotkey, one row each.

Not a measurement (see `loss`) and not the pay (see `weights`): it folds a round's observations into ratings and
moving averages, as a pure function, and is kept as JSON between runs.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from subnet.scoring import ratings
from subnet.scoring.loss import LossScore
from subnet.scoring.ratings import Rating

if TYPE_CHECKING:
    from subnet.config import ScoringConfig

MAX_ROWS = 4096
"""Most hotkeys a table holds: sixteen generations of a full subnet of 256."""
FORGET_ROUNDS = 512
"""Rounds without a sign of life after which a row is dropped; its evidence has long decayed by then."""
MAX_JSON_BYTES = 4 * 1024 * 1024
_VERSION = 1


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

    `participation`: 0..1, the share of its part in the exchange that it did. `digest_ok`: its state digest is right.
    """

    loss: LossScore | None
    participation: float
    digest_ok: bool

    def __post_init__(self) -> None:
        if not 0 <= self.participation <= 1:
            raise ValueError(f"participation must be between 0 and 1, got {self.participation}")


@dataclass(frozen=True)
class Row:
    """One hotkey: its rating, three averages in 0..1, and the last round it was seen in.

    `evidence` averages how much of the round's best drop each evaluated contribution gave (`evidence_of`).
    """

    rating: Rating = field(default_factory=Rating)
    evidence: Average = field(default_factory=Average)
    participation: Average = field(default_factory=Average)
    digest: Average = field(default_factory=Average)
    last_round: int = -1


@dataclass(frozen=True)
class ScoreTable:
    """hotkey -> Row, and the last round that was folded in (-1 before the first)."""

    rows: Mapping[str, Row] = field(default_factory=dict)
    round: int = -1


def evidence_of(losses: Mapping[str, LossScore], own_z: float) -> dict[str, float]:
    """hotkey -> evidence of work in one round, 0..1: held_out / (the round's best evident held_out), 0 if not evident.

    A ratio within a round has no scale that could drift. Against the best and not the median, so that a crowd of
    near-nothings cannot make itself the norm: a k-th of the work gives about a k-th of the evidence. Random
    directions of an honest norm, which by luck pass `LossScore.evident` in one round of eight on a 1 M parameter
    model, stay below 0.04 here, and below that as models grow (their effect falls with the root of the size).
    """
    evident = {hotkey: loss.held_out for hotkey, loss in losses.items() if loss.evident(own_z)}
    best = max(evident.values(), default=0.0)
    return {hotkey: evident[hotkey] / best if hotkey in evident else 0.0 for hotkey in losses}


def observe(
    table: ScoreTable, round_index: int, observations: Mapping[str, Observation], cfg: "ScoringConfig"
) -> ScoreTable:
    """`table` after one round. Independent of the order of `observations`; `table` itself is not changed.

    Evaluated hotkeys play one match on their held-out drops and add to their evidence. Hotkeys present but not
    evaluated (a validator may sample) keep rating and evidence. A hotkey of the table that is absent adds a 0 to
    all three averages: its pay fades with its participation and stops once evidence is below `cfg.min_evidence`.
    Rounds the validator itself missed change nothing. Raises ValueError when the round is not after the last one
    (a repeated round would count twice) and when the table would pass MAX_ROWS.
    """
    if round_index <= table.round:
        raise ValueError(f"round {round_index} is not after round {table.round}, the last one in the table")
    losses = {hotkey: seen.loss for hotkey, seen in observations.items() if seen.loss is not None}
    evidence = evidence_of(losses, cfg.own_z)
    improvements = {hotkey: loss.held_out for hotkey, loss in losses.items()}
    before = {hotkey: row.rating for hotkey, row in table.rows.items()}
    rated = ratings.update(before, improvements, cfg.openskill_beta, cfg.openskill_tau)
    rows = {}
    for hotkey in sorted(table.rows.keys() | observations.keys()):
        row = table.rows.get(hotkey, Row())
        row = _fold(row, observations.get(hotkey), evidence.get(hotkey), round_index, cfg.evidence_decay)
        if round_index - row.last_round <= FORGET_ROUNDS:
            rows[hotkey] = replace(row, rating=rated.get(hotkey, row.rating))
    if len(rows) > MAX_ROWS:
        raise ValueError(f"{len(rows)} hotkeys in the score table, at most {MAX_ROWS} are kept")
    return ScoreTable(rows, round_index)


def _fold(row: Row, seen: Observation | None, evidence: float | None, round_index: int, decay: float) -> Row:
    if seen is None:
        faded = {name: getattr(row, name).add(0.0, decay) for name in ("evidence", "participation", "digest")}
        return replace(row, **faded)
    return replace(
        row,
        evidence=row.evidence if evidence is None else row.evidence.add(evidence, decay),
        participation=row.participation.add(seen.participation, decay),
        digest=row.digest.add(float(seen.digest_ok), decay),
        last_round=round_index,
    )


def to_json(table: ScoreTable) -> str:
    """Canonical JSON: equal tables give equal text, and floats round-trip exactly."""
    rows = {
        hotkey: {
            "rating": list(row.rating),
            "evidence": list(row.evidence),
            "participation": list(row.participation),
            "digest": list(row.digest),
            "last_round": row.last_round,
        }
        for hotkey, row in table.rows.items()
    }
    document = {"version": _VERSION, "round": table.round, "rows": rows}
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)


def from_json(text: str) -> ScoreTable:
    """The table that `to_json` wrote. Raises ValueError, naming the place, on anything else: too long, not JSON,
    unknown, missing or repeated keys, wrong types, values that are not finite or out of range, too many rows."""
    if len(text) > MAX_JSON_BYTES:
        raise ValueError(f"the score table has {len(text)} characters, at most {MAX_JSON_BYTES} are read")
    try:
        document = json.loads(text, object_pairs_hook=_unique)
    except RecursionError as error:
        raise ValueError("the score table is nested too deeply") from error
    _keys(document, {"version", "round", "rows"}, "the score table")
    if document["version"] != _VERSION:
        raise ValueError(f"the score table has version {document['version']!r}, this program reads {_VERSION}")
    last = _whole(document["round"], "round")
    if not isinstance(document["rows"], dict) or len(document["rows"]) > MAX_ROWS:
        raise ValueError(f"rows must be a table of at most {MAX_ROWS} hotkeys")
    rows = {hotkey: _row(entry, hotkey, last) for hotkey, entry in document["rows"].items()}
    return ScoreTable(rows, last)


def _row(entry: Any, hotkey: str, last: int) -> Row:
    _keys(entry, {"rating", "evidence", "participation", "digest", "last_round"}, hotkey)
    mu, sigma = _pair(entry["rating"], f"{hotkey}.rating")
    if sigma <= 0:
        raise ValueError(f"{hotkey}.rating must have a sigma above 0, got {sigma}")
    evidence, participation, digest = (
        _average(entry[name], f"{hotkey}.{name}") for name in ("evidence", "participation", "digest")
    )
    seen = _whole(entry["last_round"], f"{hotkey}.last_round")
    if seen > last:
        raise ValueError(f"{hotkey}.last_round is {seen}, after the table's round {last}")
    return Row(Rating(mu, sigma), evidence, participation, digest, seen)


def _average(value: Any, where: str) -> Average:
    total, weight = _pair(value, where)
    if not 0 <= total <= weight + 1e-9 or weight > 1 + 1e-9:
        raise ValueError(f"{where} must satisfy 0 <= total <= weight <= 1, got {total}, {weight}")
    return Average(total, weight)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("the score table repeats a key")
    return table


def _keys(value: Any, expected: set[str], where: str) -> None:
    if not isinstance(value, dict) or value.keys() != expected:
        raise ValueError(f"{where} must be a table of exactly {', '.join(sorted(expected))}")


def _whole(value: Any, where: str) -> int:
    if type(value) is not int or not -1 <= value < 2**63:
        raise ValueError(f"{where} must be a whole number from -1, got {value!r:.60}")
    return value


def _pair(value: Any, where: str) -> tuple[float, float]:
    if not isinstance(value, list) or len(value) != 2 or not all(type(number) in (int, float) for number in value):
        raise ValueError(f"{where} must be a list of two numbers")
    first, second = (float(number) if abs(number) < 2**63 else math.inf for number in value)
    if not (math.isfinite(first) and math.isfinite(second)):
        raise ValueError(f"{where} must hold two finite numbers, got {value!r:.60}")
    return first, second

"""The judging of one round's contributions: fed one decoded pseudo-gradient at a time, it ends in observations.

Not a puller of bytes, nor the table over time (`subnet.scoring.table`): no network, clock or chain in here, so that a
validator and a simulation judge with the same code. It holds no contribution longer than a call.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from subnet.config import ScoringConfig
from subnet.diloco.aggregate import clip_factors, norm
from subnet.diloco.codec import decode_part
from subnet.diloco.scheme import Scheme
from subnet.exchange.commitment import NORM_TOLERANCE, Commitment
from subnet.exchange.round import Update
from subnet.scoring.loss import LossScore
from subnet.scoring.table import Observation
from subnet.swarm.records import BadRecord
from subnet.validator.audit import Audit
from subnet.validator.evaluate import Evaluator

WORTHLESS = LossScore(-math.inf, 0.0, -math.inf, 0.0)
"""The score of a contribution that its owner does not show, or that is not what was declared: last, and no evidence."""


@dataclass(frozen=True)
class Case:
    """A finished round as a validator knows it.

    `theta`: the fp32 parameters it started from. `agreed`: hotkeys whose state digest is the majority's. `uids`: of the
    hotkeys that may be judged. `beacon` draws the samples, `audit_beacon` the parts to be made again: hashes of blocks
    after the commitments and after the round.
    """

    round: int
    theta: torch.Tensor
    update: Update
    agreed: frozenset[str]
    uids: Mapping[str, int]
    beacon: bytes
    audit_beacon: bytes


class Judge:
    """What stays from round to round; `begin` opens one."""

    def __init__(self, scheme: Scheme, evaluator: Evaluator, cfg: ScoringConfig) -> None:
        self.scheme = scheme
        self.evaluator = evaluator
        self.cfg = cfg

    def begin(self, case: Case) -> Judgement:
        """Measure the round's baseline; the contributions that are `wanted` are to be shown to what is returned."""
        return Judgement(self, case)


class Judgement:
    """Of one round. `baseline`: mean held-out loss of the round's first state, nats a token."""

    def __init__(self, judge: Judge, case: Case) -> None:
        self.judge = judge
        self.case = case
        roster = case.update.roster
        self.wanted: Sequence[Commitment] = [c for c in roster.commitments if c.hotkey in case.uids]
        clips = clip_factors([c.norm for c in roster.commitments])
        self._clips = {c.hotkey: clip for c, clip in zip(roster.commitments, clips, strict=True)}
        self._audit = Audit(judge.scheme, case.update, case.audit_beacon, judge.cfg.audit_rate)
        self._losses: dict[str, LossScore] = {}
        self.baseline = judge.evaluator.begin(case.theta, case.beacon, case.round)

    def hear(self, commitment: Commitment, delta: torch.Tensor | None) -> None:
        """Measure one contribution, fp32 of the layout's size; None: its owner did not show what was committed to."""
        hotkey = commitment.hotkey
        if delta is None:
            self._losses[hotkey] = WORTHLESS
            return
        self._audit.note(hotkey, delta)
        uid, clip = self.case.uids[hotkey], self._clips[hotkey]
        self._losses[hotkey] = self.judge.evaluator.measure(commitment, uid, delta, clip)

    def faulty(self) -> set[str]:
        """Reducers whose signed word is proven wrong, in the round or by the audit."""
        return self.case.update.faults | self._audit.wrong()

    def observations(self) -> dict[str, Observation]:
        """Of every listed hotkey. If nobody at all delivered, that says more of this validator's link: no losses."""
        losses: Mapping[str, LossScore] = self._losses
        if all(loss is WORTHLESS for loss in losses.values()):
            losses = {}
        faulty = self.faulty()
        return {
            c.hotkey: self._observation(c.hotkey, losses.get(c.hotkey), c.hotkey not in faulty)
            for c in self.case.update.roster.commitments
        }

    def _observation(self, hotkey: str, loss: LossScore | None, honest: bool) -> Observation:
        """Participation: share of the parts that hold it, halved unless what it had to reduce could be had as well.

        A reducer that is not `honest` gets nothing, whatever its contribution is worth.
        """
        update = self.case.update
        results = update.results.values()
        averaged = hotkey in {c.hotkey for c in update.roster.mean}
        if not averaged:
            participation = 1.0 if loss is not None and loss is not WORTHLESS else 0.0
        elif not honest:
            participation = 0.0
        else:
            words = [part for part, by in update.words.items() if hotkey in by]
            reduced = bool(words) and not set(words) & set(update.missing)
            held = sum(hotkey in r.included for r in results) / max(1, len(results))
            participation = held * (1.0 if reduced else 0.5)
        return Observation(loss if honest else WORTHLESS, participation, digest_ok=hotkey in self.case.agreed)


def opened(scheme: Scheme, commitment: Commitment, leaves: Sequence[bytes]) -> torch.Tensor:
    """A contribution's leaves, already checked against its root, as fp32 of the layout's size.

    Raises CodecError for malformed bytes, BadRecord when the norm is not the declared one.
    """
    delta = decode_part(scheme.codec, scheme.layout, leaves, 0, scheme.layout.num_leaves)
    if abs(norm(delta) - commitment.norm) > NORM_TOLERANCE * max(commitment.norm, 1e-12):
        raise BadRecord("declared norm differs from the contribution's")
    return delta

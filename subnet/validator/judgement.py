"""The judging of one round's contributions: fed one decoded pseudo-gradient at a time, it ends in observations.

Not a puller of bytes, nor the table over time (`subnet.scoring.table`): no network, clock or chain in here, so that a
validator and a simulation judge with the same code. It holds no contribution longer than a call, only sketches.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from subnet.config import RunConfig
from subnet.diloco.aggregate import norm
from subnet.diloco.codec import CodecError, decode_part
from subnet.diloco.scheme import Scheme
from subnet.exchange.commitment import NORM_TOLERANCE, Commitment
from subnet.exchange.round import Update
from subnet.scoring import copies
from subnet.scoring.loss import LossScore, excess, paired, plausible
from subnet.scoring.order import undecided
from subnet.scoring.table import Observation
from subnet.swarm.records import BadRecord
from subnet.validator.audit import Audit
from subnet.validator.evaluate import Evaluator, Losses
from subnet.validator.participation import participation

WORTHLESS = LossScore(-math.inf, 0.0, -math.inf, 0.0)
"""The score of a contribution that its owner does not show, or that is not what was declared: last, and no evidence."""


@dataclass(frozen=True)
class Case:
    """A finished round as a validator knows it.

    `theta`: the fp32 parameters it started from. `agreed`: hotkeys whose state digest is the majority's. `uids`: of the
    hotkeys that may be judged. `beacon` draws the samples, `audit_beacon` the parts to be made again: hashes of blocks
    after the commitments and after the round. `omitted`: commitments that this validator saw in time and that the
    roster's leader left out; they are judged by their loss as the others are.
    """

    round: int
    theta: torch.Tensor
    update: Update
    agreed: frozenset[str]
    uids: Mapping[str, int]
    beacon: bytes
    audit_beacon: bytes
    omitted: tuple[Commitment, ...] = ()


class Judge:
    """What stays from round to round: the model, which elements are sketched (a `secret` of its own), last sketches."""

    def __init__(self, scheme: Scheme, evaluator: Evaluator, run: RunConfig, secret: bytes) -> None:
        self.scheme = scheme
        self.evaluator = evaluator
        self.run = run
        self.secret = secret
        self.coordinates = torch.from_numpy(copies.coordinates(secret, scheme.layout.numel))
        self.sketches: dict[str, NDArray[np.float32]] = {}

    def begin(self, case: Case) -> Judgement:
        """Measure the round's baseline; the contributions that are `wanted` are to be shown to what is returned."""
        return Judgement(self, case)


class Judgement:
    """Of one round: `hear` every one that is `wanted`, `hear_again` what is then `undecided`, and take `observations`.

    `baseline`: mean held-out loss of the round's first state, nats a token.
    """

    def __init__(self, judge: Judge, case: Case) -> None:
        self.judge = judge
        self.case = case
        roster = case.update.roster
        listed = [*roster.commitments, *case.omitted]
        self.wanted: Sequence[Commitment] = [c for c in listed if c.hotkey in case.uids]
        clips = plausible([c.norm for c in listed], [c.steps for c in listed])
        self._clips = {c.hotkey: clip for c, clip in zip(listed, clips, strict=True)}
        self._audit = Audit(judge.scheme, case.update, case.audit_beacon, judge.run.scoring.audit_rate)
        self._own: dict[str, Losses] = {}
        self._held_out: dict[str, Losses] = {}
        self._refused: set[str] = set()
        self._sketches: dict[str, NDArray[np.float32]] = {}
        common = case.update.delta if case.update.delta.numel() and bool(case.update.delta.any()) else None
        self._before = judge.evaluator.begin(case.theta, common, case.beacon, case.round, case.uids, self.wanted)
        self.baseline = float(self._before.held_out.mean())

    def hear(self, commitment: Commitment, delta: torch.Tensor | None) -> None:
        """Measure one contribution, fp32 of the layout's size; None: its owner did not show what was committed to."""
        hotkey = commitment.hotkey
        if delta is None:
            self._refused.add(hotkey)
            return
        self._audit.note(hotkey, delta)
        self._sketches[hotkey] = delta[self.judge.coordinates].numpy()
        own, held_out = self.judge.evaluator.measure(hotkey, delta, self._clips[hotkey])
        self._own[hotkey] = self._before.own[hotkey] - own
        self._held_out[hotkey] = self._before.held_out[: len(held_out)] - held_out

    def hear_leaves(self, commitment: Commitment, leaves: Sequence[bytes] | None) -> CodecError | BadRecord | None:
        """`hear` what these encode, already checked against its root; why not, if they are not what was declared.

        Decoded here, so that of contributions that arrive together one at a time is held as numbers.
        """
        try:
            self.hear(commitment, None if leaves is None else opened(self.judge.scheme, commitment, leaves))
        except (CodecError, BadRecord) as error:
            self.hear(commitment, None)
            return error
        return None

    def undecided(self) -> list[Commitment]:
        """Of those heard, whose place in the ranking needs the rest of the held-out samples; at most half of them."""
        open_ = undecided(self._held_out)
        return [c for c in self.wanted if c.hotkey in open_]

    def hear_again(self, commitment: Commitment, delta: torch.Tensor) -> None:
        """Measure a contribution on the rest of the held-out samples as well."""
        hotkey = commitment.hotkey
        rest = self.judge.evaluator.measure_rest(delta, self._clips[hotkey])
        first = self._held_out[hotkey]
        if len(rest):
            self._held_out[hotkey] = np.concatenate([first, self._before.held_out[len(first) :] - rest])

    def hear_leaves_again(self, commitment: Commitment, leaves: Sequence[bytes]) -> None:
        """`hear_again` what these encode, which was heard before."""
        self.hear_again(commitment, opened(self.judge.scheme, commitment, leaves))

    def faulty(self) -> set[str]:
        """Reducers whose signed word is proven wrong, in the round or by the audit."""
        return self.case.update.faults | self._audit.wrong()

    def observations(self) -> dict[str, Observation]:
        """Of every listed hotkey. If nobody at all delivered, that says more of this validator's link: no losses."""
        case = self.case
        losses = {hotkey: self._loss(hotkey) for hotkey in self._own}
        if losses:
            losses |= dict.fromkeys(self._refused, WORTHLESS)
        faulty = self.faulty()
        proven = replace(case.update, faults=faulty)
        stale = self._stale(losses)
        twins = self._twins(sorted(self._sketches.keys() - stale))
        self.judge.sketches = self._sketches
        seen = {}
        for c in (*case.update.roster.commitments, *case.omitted):
            took_part = (
                None
                if c in case.omitted
                else participation(proven, c.hotkey, c.hotkey in self._own, self.judge.run.aggregate.redundancy)
            )
            seen[c.hotkey] = Observation(
                WORTHLESS if c.hotkey in faulty else losses.get(c.hotkey),
                took_part,
                digest_ok=c.hotkey in case.agreed,
                faulty=c.hotkey in faulty,
                tokens=c.tokens,
                twins=twins.get(c.hotkey, frozenset()),
                stale=c.hotkey in stale,
            )
        return seen

    def _loss(self, hotkey: str) -> LossScore:
        before, own, held_out = self._before, self._own[hotkey], self._held_out[hotkey]
        own_drop, own_error = _drop(own)
        held_drop, held_error = _drop(held_out)
        common = before.common_held_out
        if common is None:
            return LossScore(own_drop, own_error, held_drop, held_error)
        more, error = excess(own, held_out, before.common_own[hotkey], common[: len(held_out)])
        if len(held_out) < len(common) and math.isfinite(held_drop):
            held_drop += _slope(held_out, common) * float(common.mean() - common[: len(held_out)].mean())
        return LossScore(own_drop, own_error, held_drop, held_error, more, error)

    def _twins(self, hotkeys: list[str]) -> dict[str, frozenset[str]]:
        if len(hotkeys) < 2:
            return {}
        steps = {c.hotkey: float(c.steps) for c in self.wanted}
        found = copies.groups(np.stack([self._sketches[h] for h in hotkeys]), [steps[h] for h in hotkeys])
        named = [frozenset(hotkeys[i] for i in group) for group in found]
        return {hotkey: group - {hotkey} for group in named for hotkey in group}

    def _stale(self, losses: Mapping[str, LossScore]) -> set[str]:
        helpful = {h for h in self._sketches if losses[h].evident(self.judge.run.scoring.evident_z)}
        return copies.stale(self._sketches, self.judge.sketches, helpful)


def opened(scheme: Scheme, commitment: Commitment, leaves: Sequence[bytes]) -> torch.Tensor:
    """A contribution's leaves, already checked against its root, as fp32 of the layout's size.

    Raises CodecError for malformed bytes, BadRecord when the norm is not the declared one.
    """
    delta = decode_part(scheme.codec, scheme.layout, leaves, 0, scheme.layout.num_leaves)
    if abs(norm(delta) - commitment.norm) > NORM_TOLERANCE * max(commitment.norm, 1e-12):
        raise BadRecord("declared norm differs from the contribution's")
    return delta


def _drop(drops: Losses) -> tuple[float, float]:
    """Mean and standard error of drops; -inf where one is not finite."""
    return paired(np.zeros_like(drops), -drops)


def _slope(drops: Losses, common: Losses) -> float:
    """How a contribution's drop goes with the common update's, within 0..2: what was measured on fewer samples is put
    on the footing of all (the ratio estimator of survey sampling)."""
    scale = float(common[: len(drops)].mean())
    return min(2.0, max(0.0, float(drops.mean()) / scale)) if scale > 0 else 0.0

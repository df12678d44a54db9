"""Yuma consensus: from stake, weights and bonds to incentive, dividends, permits and emission of one epoch.

A pure function of the subnet's state at one block, exact in the runtime's own fixed-point arithmetic.
Rules and order follow `epoch_mechanism` of Subtensor's pallet (sparse path, liquid alpha off).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from subnet.localnet.consensus.fixed import (
    FRACTION_BITS,
    ONE,
    Q32,
    U16_MAX,
    divide,
    from_u16,
    multiply,
    normalize,
    normalize_columns,
    normalize_rows,
    to_u16,
)

SparseRow = Sequence[tuple[int, int]]
"""(uid, value) pairs, value a u16; uids not registered any more (>= n) are ignored."""

U64_MAX = 0xFFFF_FFFF_FFFF_FFFF
KAPPA = 32_767
BONDS_MOVING_AVERAGE = 900_000
BONDS_PENALTY = U16_MAX
MAX_VALIDATORS = 64
ACTIVITY_CUTOFF = 5_000


@dataclass(frozen=True)
class EpochInputs:
    """State of one subnet when its epoch runs. Sequences are indexed by uid and all of length n.

    Defaults are what Subtensor gives a newly registered subnet; Yuma3 is among them
    (`init_new_network` switches it on), the older bond rule is reached with `yuma3=False`.
    """

    alpha_stake: Sequence[int]
    """Alpha staked on the hotkey in this subnet, rao (all its stakers together)."""
    root_stake: Sequence[int]
    """TAO staked on the hotkey in subnet 0, rao."""
    last_update: Sequence[int]
    """Block at which the uid last set weights; at first the block of its registration."""
    registered_at: Sequence[int]
    """Block at which the uid was last registered."""
    weights: Sequence[SparseRow]
    """Row i: what uid i set, unnormalised u16."""
    bonds: Sequence[SparseRow]
    """Row i: bonds of uid i as the previous epoch returned them, u16."""
    validator_permit: Sequence[bool]
    """Permits as the previous epoch returned them; they decide whose weights count now."""
    current_block: int
    tempo: int
    rao_emission: int
    """Alpha to pay in this epoch to miners and validators together (without the owner's cut), rao."""
    last_epoch_block: int = 0
    """Block of the last epoch that ran, 0 before the first: bonds to uids registered since then are void."""
    tao_weight: int = 0
    """Weight of root TAO against alpha, u64: 2**64 - 1 means 1.0 (mainnet: 3_320_413_933_267_719_290, 0.18)."""
    owner_uid: int | None = None
    """The subnet owner's uid: always permitted, may weigh itself, exempt from `stake_threshold`."""
    activity_cutoff: int = ACTIVITY_CUTOFF
    """Blocks after `last_update` from which a uid's stake stops counting."""
    kappa: int = KAPPA
    """Majority, u16 proportion: a weight counts up to what this share of the stake supports."""
    bonds_moving_average: int = BONDS_MOVING_AVERAGE
    """Share of the old bonds kept by the EMA, millionths."""
    bonds_penalty: int = BONDS_PENALTY
    """u16 proportion: 0 bonds follow the weights as set, 65535 as clipped."""
    max_validators: int = MAX_VALIDATORS
    stake_threshold: int = 0
    """Stake weight (rao) below which a validator's stake counts as 0."""
    yuma3: bool = True


@dataclass(frozen=True)
class EpochResult:
    """What an epoch writes back. Arrays have shape (n,), indexed by uid; u16 arrays are proportions of 65535."""

    active: npt.NDArray[np.bool_]
    stake_weight: npt.NDArray[np.uint16]
    """Share of the subnet's stake weight, inactive and unpermitted included."""
    ranks: npt.NDArray[np.uint16]
    """Equal to `incentive`; the runtime keeps both columns."""
    trust: npt.NDArray[np.uint16]
    """Rank after clipping over rank before clipping."""
    consensus: npt.NDArray[np.uint16]
    validator_trust: npt.NDArray[np.uint16]
    incentive: npt.NDArray[np.uint16]
    dividends: npt.NDArray[np.uint16]
    validator_permit: npt.NDArray[np.bool_]
    bonds: tuple[tuple[tuple[int, int], ...], ...]
    """Sparse rows to store; empty for uids without a permit from now on."""
    pruning_scores: npt.NDArray[np.uint16]
    """The normalised combined emission; the lowest is replaced first."""
    emission_share: npt.NDArray[np.float64]
    """Normalised combined emission (incentive + dividends), sums to 1 within n * 2**-32, or to 0 without stake."""
    server_emission: npt.NDArray[np.int64]
    """rao of `rao_emission` earned as miner, rounded down."""
    validator_emission: npt.NDArray[np.int64]
    """rao of `rao_emission` earned as validator (before takes and stakers), rounded down."""
    emission: npt.NDArray[np.int64]
    """rao of `rao_emission` earned in total, rounded down: the metagraph's emission column."""


def epoch(inputs: EpochInputs) -> EpochResult:
    """Run one epoch of Yuma consensus.

    Ties in stake for the last permits go to the higher uid, as the runtime's stable ascending sort has it;
    otherwise the result is equivariant under a permutation of the uids.

    Raises ValueError if the per-uid sequences differ in length or a proportion is out of range.
    """
    n = _check(inputs)
    owner = np.zeros(n, dtype=bool)
    if inputs.owner_uid is not None:
        owner[inputs.owner_uid] = True
    last_update = np.asarray(inputs.last_update, dtype=np.int64)
    registered_at = np.asarray(inputs.registered_at, dtype=np.int64)

    active = last_update + inputs.activity_cutoff >= inputs.current_block
    stake = _stake_shares(inputs, owner)
    permit = np.asarray(inputs.validator_permit, dtype=bool) | owner
    new_permit = _top_k(stake, inputs.max_validators) | owner
    active_stake = normalize(np.where(active & permit, stake, 0))

    weights = _counted_weights(inputs.weights, permit, owner, last_update, registered_at)
    consensus = weighted_median(active_stake, weights, int(from_u16(inputs.kappa)))
    clipped = np.minimum(weights, consensus)
    validator_trust = clipped.sum(axis=1)
    preranks = multiply(weights, active_stake[:, None]).sum(axis=0)
    raw_ranks = multiply(clipped, active_stake[:, None]).sum(axis=0)
    trust = np.where(preranks > 0, divide(raw_ranks, preranks), 0)
    incentive = normalize(raw_ranks)

    ratio = from_u16(inputs.bonds_penalty)
    bond_weights = np.maximum(weights + multiply(ratio, clipped - weights), 0)
    bonds, dividends = _bonds_and_dividends(inputs, bond_weights, active_stake, incentive, registered_at)

    server, validator, combined = _emission_shares(incentive, dividends, stake, active_stake)
    return EpochResult(
        active=active,
        stake_weight=to_u16(stake),
        ranks=to_u16(incentive),
        trust=to_u16(trust),
        consensus=to_u16(consensus),
        validator_trust=to_u16(validator_trust),
        incentive=to_u16(incentive),
        dividends=to_u16(dividends),
        validator_permit=new_permit,
        bonds=_sparse_rows(bonds, new_permit),
        pruning_scores=to_u16(combined),
        emission_share=combined / ONE,
        server_emission=_rao(server, inputs.rao_emission),
        validator_emission=_rao(validator, inputs.rao_emission),
        emission=_rao(combined, inputs.rao_emission),
    )


def weighted_median(stake: Q32, scores: Q32, majority: int) -> Q32:
    """Stake-weighted median of each column of `scores`.

    The largest score that at least `majority` of the stake supports, i.e. gives that score or more.

    stake: (n,) Q32, rows with 0 do not vote; scores: (n, m) Q32; majority: Q32 in 0..1. Returns (m,) Q32.
    """
    voters = stake > 0
    if not voters.any():
        return np.zeros(scores.shape[1], dtype=np.int64)
    votes, ballots = normalize(stake[voters]), scores[voters]
    minority = int(votes.sum()) - majority
    order = np.argsort(ballots, axis=0, kind="stable")
    reached = np.cumsum(votes[order], axis=0) > minority
    reached[-1] = True
    pivot = order[reached.argmax(axis=0), np.arange(ballots.shape[1])]
    return ballots[pivot, np.arange(ballots.shape[1])]


def stake_weights(alpha_stake: Sequence[int], root_stake: Sequence[int], tao_weight: int) -> list[int]:
    """Stake weight per uid, alpha + tao_weight * root TAO, as rao * 2**32 (Python ints, exact).

    `tao_weight` is the runtime's u64 proportion, first rounded down to 32 fractional bits as the runtime does.
    """
    weight = (tao_weight << FRACTION_BITS) // U64_MAX
    return [(alpha << FRACTION_BITS) + root * weight for alpha, root in zip(alpha_stake, root_stake, strict=True)]


def _check(inputs: EpochInputs) -> int:
    n = len(inputs.alpha_stake)
    for name in ("root_stake", "last_update", "registered_at", "weights", "bonds", "validator_permit"):
        if len(getattr(inputs, name)) != n:
            raise ValueError(f"{name} has {len(getattr(inputs, name))} entries for {n} uids")
    if inputs.owner_uid is not None and not 0 <= inputs.owner_uid < n:
        raise ValueError(f"owner_uid {inputs.owner_uid} is not among {n} uids")
    if not (0 <= inputs.kappa <= U16_MAX and 0 <= inputs.bonds_penalty <= U16_MAX):
        raise ValueError("kappa and bonds_penalty must be within 0..65535")
    if not 0 <= inputs.bonds_moving_average <= 1_000_000:
        raise ValueError("bonds_moving_average must be within 0..1000000")
    return n


def _stake_shares(inputs: EpochInputs, owner: npt.NDArray[np.bool_]) -> Q32:
    threshold = inputs.stake_threshold << FRACTION_BITS
    weights = [
        weight if owner[uid] or weight >= threshold else 0
        for uid, weight in enumerate(stake_weights(inputs.alpha_stake, inputs.root_stake, inputs.tao_weight))
    ]
    total = sum(weights) or 1
    return np.array([(weight << FRACTION_BITS) // total for weight in weights], dtype=np.int64)


def _top_k(stake: Q32, k: int) -> npt.NDArray[np.bool_]:
    permit = stake > 0
    permit[np.argsort(stake, kind="stable")[: max(0, len(stake) - k)]] = False
    return permit


def _counted_weights(
    rows: Sequence[SparseRow],
    permit: npt.NDArray[np.bool_],
    owner: npt.NDArray[np.bool_],
    last_update: npt.NDArray[np.int64],
    registered_at: npt.NDArray[np.int64],
) -> Q32:
    weights = _dense(rows)
    weights[~permit] = 0
    weights[np.diag(~owner)] = 0
    weights[last_update[:, None] <= registered_at[None, :]] = 0
    return normalize_rows(weights)


def _bonds_and_dividends(
    inputs: EpochInputs, bond_weights: Q32, active_stake: Q32, incentive: Q32, registered_at: npt.NDArray[np.int64]
) -> tuple[Q32, Q32]:
    """Bonds to store, (n, n) Q32 proportions, and normalised dividends, (n,) Q32."""
    last_epoch = inputs.last_epoch_block + 1 if inputs.last_epoch_block else inputs.current_block - inputs.tempo
    stored = _dense(inputs.bonds)
    stored[:, registered_at >= max(last_epoch, 0)] = 0
    keep = np.array((inputs.bonds_moving_average << FRACTION_BITS) // 1_000_000)
    take = np.asarray(ONE - keep)

    if inputs.yuma3:
        bonds = multiply(take, bond_weights) + multiply(keep, from_u16(stored))
        per_validator = multiply(normalize_columns(bonds), incentive[None, :]).sum(axis=1)
        return bonds, normalize(multiply(per_validator, active_stake))

    old = normalize_columns(stored)
    new = normalize_columns(multiply(bond_weights, active_stake[:, None]))
    bonds = normalize_columns(multiply(take, new) + multiply(keep, old))
    dividends = normalize(multiply(bonds, incentive[None, :]).sum(axis=1))
    return divide(bonds, bonds.max(axis=0, keepdims=True, initial=0)), dividends


def _emission_shares(incentive: Q32, dividends: Q32, stake: Q32, active_stake: Q32) -> tuple[Q32, Q32, Q32]:
    """Shares of the emission earned as miner, as validator and in total, each (n,) Q32."""
    combined = incentive + dividends
    total = combined.sum()
    if total == 0:
        fallback = active_stake if active_stake.any() else stake
        return np.zeros_like(incentive), fallback, fallback
    return divide(incentive, total), divide(dividends, total), normalize(combined)


def _dense(rows: Sequence[SparseRow]) -> Q32:
    matrix = np.zeros((len(rows), len(rows)), dtype=np.int64)
    for uid, row in enumerate(rows):
        for target, value in row:
            if target < len(rows):
                matrix[uid, target] = value
    return matrix


def _sparse_rows(bonds: Q32, permit: npt.NDArray[np.bool_]) -> tuple[tuple[tuple[int, int], ...], ...]:
    values = to_u16(bonds)
    return tuple(
        tuple((int(uid), int(values[row, uid])) for uid in np.flatnonzero(bonds[row])) if permit[row] else ()
        for row in range(len(bonds))
    )


def _rao(shares: Q32, emission: int) -> npt.NDArray[np.int64]:
    return np.array([(int(share) * emission) >> FRACTION_BITS for share in shares], dtype=np.int64)

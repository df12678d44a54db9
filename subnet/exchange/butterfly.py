"""One part of the butterfly all-reduce: gather it from its contributors, average it, hand it on.

The reducer of a part pulls that part of every averaged contribution and checks it against the committed Merkle root;
what fails or is late is left out and named in the signed result. Pure but for the injected `pull`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from subnet.diloco.aggregate import mean_weights, norm, reduce_part
from subnet.diloco.codec import decode_part, encode_part
from subnet.diloco.merkle import hash_leaves
from subnet.diloco.merkle import root as merkle_root
from subnet.diloco.scheme import Scheme
from subnet.exchange.commitment import NORM_TOLERANCE, Commitment
from subnet.exchange.roster import Roster
from subnet.swarm.records import BadRecord, Record

# The output codec rounds an element away from zero to twice its size at most (half a step to a whole one), which also
# leaves room for the tolerance on the declared norms.
MEAN_TOLERANCE = 2.0 * (1.0 + NORM_TOLERANCE)


@dataclass(frozen=True)
class PartResult:
    """A reducer's signed word on one part: the root of its encoded mean and whose contribution is in it."""

    part: int
    reducer: str
    root: bytes
    roster: bytes
    included: frozenset[str]


@dataclass(frozen=True)
class ReducedPart:
    """Part `part` as its reducer made it: encoded leaves, who is in it, and the output codec's error to carry over.

    `residual` is fp32 of the part's size: exact mean minus what the encoded leaves decode to, as the members' weighted
    sum owes it (`Rule.owed`); zero at elements that a selective codec left out (`Scheme.selective`).
    """

    part: int
    leaves: list[bytes]
    root: bytes
    included: list[bool]
    residual: torch.Tensor


def part_body(part: int, root: bytes, roster: Roster, included: Sequence[bool]) -> dict[str, Any]:
    """The record body published under kind ``part``; `included` is a bitmap over the averaged commitments."""
    bits = bytearray((len(included) + 7) // 8)
    for index, present in enumerate(included):
        bits[index // 8] |= present << (index % 8)
    return {"part": part, "root": root, "roster": roster.root, "included": bytes(bits)}


def open_part(record: Record, roster: Roster, redundancy: int = 1) -> PartResult:
    """Check a verified ``part`` record against the roster this peer accepted.

    Raises:
        BadRecord: wrong fields, another roster, or not signed by a reducer the roster names for that part.
    """
    body = record.body
    part, root, bits = body.get("part"), body.get("root"), body.get("included")
    if record.kind != "part" or set(body) != {"part", "root", "roster", "included"}:
        raise BadRecord("part fields")
    if type(part) is not int or not 0 <= part < roster.averaged:
        raise BadRecord("part index")
    if body["roster"] != roster.root:
        raise BadRecord("part of another roster")
    if record.hotkey not in roster.reducers(part, redundancy):
        raise BadRecord("part by another hotkey than its reducer")
    if not (isinstance(root, bytes) and len(root) == 32 and isinstance(bits, bytes)):
        raise BadRecord("part types")
    if len(bits) != (roster.averaged + 7) // 8:
        raise BadRecord("part bitmap length")
    included = frozenset(c.hotkey for i, c in enumerate(roster.mean) if bits[i // 8] >> (i % 8) & 1)
    if not included:
        raise BadRecord("part of nobody")
    return PartResult(part, record.hotkey, root, roster.root, included)


def open_contribution_part(
    scheme: Scheme, commitment: Commitment, leaves: Sequence[bytes], start: int, stop: int
) -> torch.Tensor:
    """Decode leaves `[start, stop)` of a contribution to fp32 and check them against its declared norm.

    Raises:
        CodecError: malformed bytes.
        BadRecord: the part alone has a larger norm than the whole was declared to have.
    """
    values = decode_part(scheme.codec, scheme.layout, leaves, start, stop)
    if norm(values) > commitment.norm * (1.0 + NORM_TOLERANCE):
        raise BadRecord("part norm above the declared norm")
    return values


def open_reduced_part(
    scheme: Scheme, roster: Roster, result: PartResult, leaves: Sequence[bytes], start: int, stop: int
) -> torch.Tensor:
    """Decode a reduced part, leaves `[start, stop)`, to fp32, no larger than the rule can make those it names.

    Without this bound by the declared norms a single reducer could overwrite its share of the model with anything.

    Raises:
        CodecError: malformed bytes.
        BadRecord: no members with these norms give it.
    """
    values = decode_part(scheme.reduced, scheme.layout, leaves, start, stop)
    members = [c for c in roster.mean if c.hotkey in result.included]
    longest = scheme.rule.longest([c.tokens for c in members], [c.norm for c in members])
    if norm(values) > longest * MEAN_TOLERANCE:
        raise BadRecord("reduced part above any mean's norm")
    return values


def encode_reduced(
    scheme: Scheme, roster: Roster, part: int, values: Sequence[torch.Tensor | None]
) -> tuple[torch.Tensor, list[bytes]]:
    """Bring the members' `values` of a part (fp32, roster order, None where missing) together: the result, encoded."""
    start, stop = scheme.layout.parts(roster.averaged)[part]
    mean = reduce_part(values, [c.tokens for c in roster.mean], [c.norm for c in roster.mean], scheme.rule)
    return mean, encode_part(scheme.reduced, scheme.layout, mean, start, stop)


def reduce(scheme: Scheme, roster: Roster, part: int, values: Sequence[torch.Tensor | None]) -> ReducedPart:
    """A reducer's work on one part: see `encode_reduced`, and what its encoding lost."""
    mean, leaves = encode_reduced(scheme, roster, part, values)
    encoded = decode_part(scheme.reduced, scheme.layout, leaves, *scheme.layout.parts(roster.averaged)[part])
    members = [(x, c.tokens) for x, c in zip(values, roster.mean, strict=True) if x is not None]
    residual = scheme.rule.owed(mean - encoded, [x for x, _ in members], [tokens for _, tokens in members])
    if scheme.selective:
        residual[encoded == 0.0] = 0.0
    return ReducedPart(part, leaves, merkle_root(hash_leaves(leaves)), [x is not None for x in values], residual)


def carry_factor(roster: Roster, included: Sequence[bool], own: str) -> float:
    """By how much the reducer must scale a residual so that its own share of a later mean restores it (0 if absent).

    It is the inverse of its weight in this part's mean; the next round's weight may differ, so the correction is
    exact only while tokens and membership stay the same.
    """
    present = [c for c, there in zip(roster.mean, included, strict=True) if there]
    weights = mean_weights([c.tokens for c in present], [c.norm for c in present])
    for commitment, weight in zip(present, weights, strict=True):
        if commitment.hotkey == own and weight > 0.0:
            return 1.0 / weight
    return 0.0

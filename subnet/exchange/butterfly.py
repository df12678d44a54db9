"""One part of the butterfly all-reduce: gather it from its contributors, average it, hand it on.

The reducer of a part pulls that part of every averaged contribution and checks it against the committed Merkle root;
what fails or is late is left out and named in the signed result. Pure: bytes and vectors in, bytes and vectors out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from subnet.diloco.aggregate import mean_weights, norm, reduce_part
from subnet.diloco.codec import decode_part, encode_part, windows
from subnet.diloco.layout import Layout
from subnet.diloco.merkle import Tree, hash_leaves
from subnet.diloco.scheme import Scheme
from subnet.exchange.commitment import NORM_TOLERANCE, Commitment
from subnet.exchange.roster import Roster
from subnet.swarm.records import BadRecord, Record

# The output codec rounds an element away from zero to twice its size at most (half a step to a whole one), which also
# leaves room for the tolerance on the declared norms.
MEAN_TOLERANCE = 2.0 * (1.0 + NORM_TOLERANCE)
WINDOW_ELEMENTS = 2**23
"""Elements decoded at once while a part is made of many members."""

Read = Callable[[int, int], torch.Tensor]
"""fp32 of the layout's leaves `[start, stop)` of one member's contribution, within the part that is looked at."""


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
    tree: Tree
    included: list[bool]
    residual: torch.Tensor

    @property
    def root(self) -> bytes:
        """Of the encoded leaves."""
        return self.tree.root


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
    if type(part) is not int or not 0 <= part < len(roster.reducing):
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


def check_contribution_part(
    scheme: Scheme, commitment: Commitment, leaves: Sequence[bytes], start: int, stop: int
) -> None:
    """Check that leaves `[start, stop)` of a contribution can be decoded and are no longer than was declared.

    Raises:
        CodecError: malformed bytes.
        BadRecord: the part alone has a larger norm than the whole was declared to have.
    """
    read = encoded(scheme, leaves, start)
    length = math.hypot(*(norm(read(a, b)) for a, b in _windows(scheme, start, stop, 1)))
    if length > commitment.norm * (1.0 + NORM_TOLERANCE):
        raise BadRecord("part norm above the declared norm")


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


def encoded(scheme: Scheme, leaves: Sequence[bytes], first: int) -> Read:
    """A contribution's leaves from number `first` on, decoded as they are read."""
    codec, layout = scheme.codec, scheme.layout
    return lambda start, stop: decode_part(codec, layout, leaves[start - first : stop - first], start, stop)


def decoded(layout: Layout, values: torch.Tensor, first: int) -> Read:
    """A contribution's elements, fp32, from leaf `first` on."""
    offset = layout.bounds[first]
    return lambda start, stop: values[layout.bounds[start] - offset : layout.bounds[stop] - offset]


def reduced_window(
    scheme: Scheme, roster: Roster, start: int, stop: int, members: Sequence[Read | None]
) -> tuple[list[bytes], torch.Tensor]:
    """The averaged members (roster order, None where missing) brought together in leaves `[start, stop)`: the result
    encoded, and what the members are owed for what the encoding lost, fp32 of the window's size."""
    present = [i for i, read in enumerate(members) if read is not None]
    values = [None if read is None else read(start, stop) for read in members]
    mean = reduce_part(values, [c.tokens for c in roster.mean], [c.norm for c in roster.mean], scheme.rule)
    leaves = encode_part(scheme.reduced, scheme.layout, mean, start, stop)
    sent = decode_part(scheme.reduced, scheme.layout, leaves, start, stop)
    there = [x for x in values if x is not None]
    residual = scheme.rule.owed(mean - sent, there, [roster.mean[i].tokens for i in present])
    if scheme.selective:
        residual[sent == 0.0] = 0.0
    return leaves, residual


def reduce(scheme: Scheme, roster: Roster, part: int, members: Sequence[Read | None]) -> ReducedPart:
    """A reducer's work on one part, window by window (`reduced_window`).

    Leaves are independent of each other, and so is what most rules make of an element: only a window of everybody's is
    decoded at a time, however large the part.
    """
    leaves: list[bytes] = []
    residuals: list[torch.Tensor] = []
    present = sum(read is not None for read in members)
    for start, stop in _windows(scheme, *roster.parts(scheme.layout)[part], present):
        window, residual = reduced_window(scheme, roster, start, stop, members)
        leaves += window
        residuals.append(residual)
    return ReducedPart(part, leaves, Tree(hash_leaves(leaves)), [m is not None for m in members], torch.cat(residuals))


def _windows(scheme: Scheme, start: int, stop: int, members: int) -> Iterator[tuple[int, int]]:
    """The leaves `[start, stop)` in runs of which `members` decoded ones fit into WINDOW_ELEMENTS."""
    if not scheme.rule.by_element:
        yield start, stop
        return
    bounds = scheme.layout.bounds[start : stop + 1]
    for window in windows(bounds, WINDOW_ELEMENTS // max(1, members)):
        yield start, start + len(window) - 1
        start += len(window) - 1


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

"""One round's averaging among simulated miners: real codecs, rules and Merkle proofs, no network, every byte counted.

Not the protocol (`subnet.exchange` is): everybody is present and honest, so what remains of it is pure. Each miner
reduces one part of the layout, as in the butterfly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from subnet.diloco.aggregate import Mean, mean_weights, norm, reduce_part
from subnet.diloco.codec import Codec, decode_part, encode_part, encode_tree
from subnet.diloco.feedback import ErrorFeedback
from subnet.diloco.layout import Layout
from subnet.diloco.merkle import HASH_BYTES, Tree, hash_leaves


@dataclass(frozen=True)
class Contribution:
    """A miner's encoded pseudo-gradient, what it decodes to (fp32 `[numel]`) and the tokens it was trained on."""

    leaves: list[bytes]
    sent: Tensor
    tokens: int


@dataclass(frozen=True)
class Averaged:
    """The averaged pseudo-gradient as everybody decodes it, fp32 `[numel]`, and what its making cost and left over."""

    delta: Tensor
    owed: list[Tensor]
    """Per miner, fp32 `[numel]`: to be added to its error feedback, beside its own codec's error."""
    scatter_bytes: float
    """Sent per miner: its contribution to the other reducers, with the Merkle proofs. As many are received."""
    gather_bytes: float
    """Sent per miner: reduced parts to the others, with their roots. As many are received."""


def contribute(codec: Codec, layout: Layout, feedback: ErrorFeedback, delta: Tensor, tokens: int) -> Contribution:
    """Pseudo-gradient plus error feedback through the codec; settled as in a round that took all of it."""
    leaves = encode_tree(codec, layout, feedback.add(delta))
    sent = decode_part(codec, layout, leaves, 0, layout.num_leaves)
    feedback.settle(sent, [(0, layout.numel)])
    return Contribution(leaves, sent, tokens)


def average(
    layout: Layout,
    contributions: Sequence[Contribution],
    reduced: Codec,
    over: Literal["all", "senders"],
    kept_by: Literal["reducer", "senders", "nobody"],
) -> Averaged:
    """Reduce every part by its miner with the mean `over`, encode it with the codec `reduced`, and hand it to all."""
    tokens, norms = [c.tokens for c in contributions], [norm(c.sent) for c in contributions]
    weights, rule = mean_weights(tokens, norms), Mean(over)
    parts = layout.parts(len(contributions))
    delta = torch.empty(layout.numel)
    owed_by = [torch.zeros(layout.numel) for _ in contributions]
    gather_bytes = 0
    for reducer, (start, stop) in enumerate(parts):
        span = slice(*layout.span(start, stop))
        sent = [c.sent[span] for c in contributions]
        mean = reduce_part(sent, tokens, norms, rule)
        leaves = encode_part(reduced, layout, mean, start, stop)
        out = decode_part(reduced, layout, leaves, start, stop)
        delta[span] = out
        for total, part in zip(owed_by, owed(sent, mean, out, weights, reducer, over, kept_by), strict=True):
            total[span] = part
        gather_bytes += (len(parts) - 1) * (sum(map(len, leaves)) + HASH_BYTES)
    scatter_bytes = sum(_proven_bytes(c.leaves, parts, own) for own, c in enumerate(contributions))
    n = len(contributions)
    return Averaged(delta, owed_by, scatter_bytes / n, gather_bytes / n)


def owed(
    sent: Sequence[Tensor],
    mean: Tensor,
    out: Tensor,
    weights: Sequence[float],
    reducer: int,
    over: Literal["all", "senders"],
    kept_by: Literal["reducer", "senders", "nobody"],
) -> list[Tensor]:
    """Per miner, what it still owes of a part whose `mean` everybody decodes as `out`; fp32 `[n]` all.

    "reducer": it owes mean - out for all, times what its weight in a later mean takes away. "senders": where the output
    codec left a coordinate out altogether (out = 0), each owes what it sent there, so that it competes again from where
    it came; where something is left, the reducer owes the rest. "nobody": it is lost.
    """
    shares = [torch.zeros_like(mean) for _ in sent]
    if kept_by == "nobody":
        return shares
    # Over senders a coordinate's mean is divided by the shares of those who sent it: by so much less is owed.
    counted = sum((x != 0).float() / len(sent) for x in sent) if over == "senders" else torch.ones_like(mean)
    lost = (mean - out) * counted / weights[reducer]
    if kept_by == "reducer":
        shares[reducer] = lost
        return shares
    silent = out == 0
    shares = [torch.where(silent, x, 0.0) for x in sent]
    shares[reducer] += torch.where(silent, 0.0, lost)
    return shares


def ring_bytes(numel: int, workers: int) -> float:
    """Bytes each worker sends, and receives, in one ring all-reduce of fp32 gradients: 2 (M - 1) / M * 4 P."""
    return 2 * (workers - 1) / workers * 4 * numel


def _proven_bytes(leaves: Sequence[bytes], parts: Sequence[tuple[int, int]], own: int) -> int:
    """Bytes of a contribution's parts, all but its own reducer's, each with its proof; and its root in the record."""
    tree = Tree(hash_leaves(leaves))
    others = [part for index, part in enumerate(parts) if index != own]
    payload = sum(len(leaf) for start, stop in others for leaf in leaves[start:stop])
    return payload + HASH_BYTES * (1 + sum(len(tree.range_proof(start, stop)) for start, stop in others))

"""A contribution and the commitment that fixes it before anyone may read it.

The commitment carries the Merkle root of the encoded pseudo-gradient; the bytes behind that root are what reducers
average and what validators score. Declared tokens and norm weigh the mean and are checked by those who hold the bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from subnet.config import TrainConfig
from subnet.swarm.records import BadRecord, Record

# A declared norm is a float64 sum in the sender's own order; a part of it may exceed the declaration by rounding only.
NORM_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Contribution:
    """One round's encoded pseudo-gradient as held by its owner.

    `leaves` are the codec's bytes in canonical order, `root` their Merkle root, `norm` the L2 norm of the decoded
    vector, `tokens` and `steps` what was trained to obtain it.
    """

    leaves: Sequence[bytes]
    root: bytes
    norm: float
    tokens: int
    steps: int


@dataclass(frozen=True)
class Commitment:
    """What a hotkey declared about its contribution; `state` is the digest of the state it trained from."""

    hotkey: str
    root: bytes
    norm: float
    tokens: int
    steps: int
    state: bytes

    def body(self) -> dict[str, Any]:
        """The record body published under kind ``commit``."""
        return {
            "root": self.root,
            "norm": self.norm,
            "tokens": self.tokens,
            "steps": self.steps,
            "state": self.state,
        }


def open_commitment(record: Record, train: TrainConfig, seq_len: int) -> Commitment:
    """Check the fields of a verified ``commit`` record.

    Raises:
        BadRecord: a field is missing, of the wrong type, or outside what `train` allows in one round.
    """
    body = record.body
    root, norm = body.get("root"), body.get("norm")
    tokens, steps, state = body.get("tokens"), body.get("steps"), body.get("state")
    if record.kind != "commit" or set(body) != {"root", "norm", "tokens", "steps", "state"}:
        raise BadRecord("commitment fields")
    if not (isinstance(root, bytes) and len(root) == 32 and isinstance(state, bytes) and len(state) == 32):
        raise BadRecord("commitment hash length")
    if not (isinstance(norm, float) and math.isfinite(norm) and norm >= 0.0):
        raise BadRecord("commitment norm")
    if type(steps) is not int or not 1 <= steps <= train.inner_steps:
        raise BadRecord("commitment steps")
    if type(tokens) is not int or not 1 <= tokens <= steps * train.batch_size * seq_len:
        raise BadRecord("commitment tokens")
    return Commitment(record.hotkey, root, norm, tokens, steps, state)

"""A contribution and the commitment that fixes it before anyone may read it.

The commitment carries the Merkle root of the encoded pseudo-gradient; the bytes behind that root are what reducers
average and what validators score. Declared tokens and norm weigh the mean and are checked by those who hold the bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from subnet.config import RunConfig
from subnet.diloco.merkle import Tree
from subnet.model.presets import parameter_count
from subnet.swarm.records import BadRecord, Record
from subnet.swarm.traffic import MAX_RATE, UNKNOWN_RATE

# A declared norm is a float64 sum in the sender's own order; a part of it may exceed the declaration by rounding only.
NORM_TOLERANCE = 1e-3
# AdamW moves an element by about the learning rate a step, by some times that in its first steps or on a sudden
# gradient, and decay adds a little. Error feedback may ask for more: it is sent over the following rounds.
_LONGEST_STEP = 4.0


@dataclass(frozen=True)
class Contribution:
    """One round's encoded pseudo-gradient as held by its owner.

    `leaves` are the codec's bytes in canonical order, `tree` their hashes, `norm` the L2 norm of the decoded vector,
    `tokens` and `steps` what was trained to obtain it, `trace` the root of the record of these steps (`trace.Trace`),
    empty without one.
    """

    leaves: Sequence[bytes]
    tree: Tree
    norm: float
    tokens: int
    steps: int
    trace: bytes = b""

    @property
    def root(self) -> bytes:
        """The tree's, not yet bound to an owner."""
        return self.tree.root


@dataclass(frozen=True)
class Commitment:
    """What a hotkey declared about its contribution; `state` is the digest of the state it trained from.

    `root` is the contribution's, bound to the hotkey (`merkle.owned`): copied, it fits nobody's bytes. `rate`: what it
    can upload, kB/s; 0 if others cannot dial it. It then reduces nothing. `trace`: root of the record of its inner
    steps (`trace.Trace`), 32 bytes, or none.
    """

    hotkey: str
    root: bytes
    norm: float
    tokens: int
    steps: int
    state: bytes
    rate: int = UNKNOWN_RATE
    trace: bytes = b""

    def body(self) -> dict[str, Any]:
        """The record body published under kind ``commit``."""
        return {
            "root": self.root,
            "norm": self.norm,
            "tokens": self.tokens,
            "steps": self.steps,
            "state": self.state,
            "rate": self.rate,
            "trace": self.trace,
        }


def norm_limit(run: RunConfig) -> float:
    """The longest pseudo-gradient (L2) that one round's inner steps can honestly give: 4 lr H sqrt(parameters).

    The clip to the median norm is relative, and of two members it says nothing. This bound is absolute.
    """
    return _LONGEST_STEP * run.train.lr * run.train.inner_steps * math.sqrt(parameter_count(run.model))


def open_commitment(record: Record, run: RunConfig) -> Commitment:
    """Check the fields of a verified ``commit`` record.

    Raises:
        BadRecord: a field is missing, of the wrong type, or outside what `run` allows in one round.
    """
    body, train = record.body, run.train
    root, norm = body.get("root"), body.get("norm")
    tokens, steps, state, rate = body.get("tokens"), body.get("steps"), body.get("state"), body.get("rate")
    trace = body.get("trace")
    if record.kind != "commit" or set(body) != {"root", "norm", "tokens", "steps", "state", "rate", "trace"}:
        raise BadRecord("commitment fields")
    if not (isinstance(root, bytes) and len(root) == 32 and isinstance(state, bytes) and len(state) == 32):
        raise BadRecord("commitment hash length")
    if not (isinstance(norm, float) and math.isfinite(norm) and norm >= 0.0):
        raise BadRecord("commitment norm")
    if norm > norm_limit(run):
        raise BadRecord("commitment norm above what inner steps can give")
    if type(steps) is not int or not 1 <= steps <= train.inner_steps:
        raise BadRecord("commitment steps")
    if type(tokens) is not int or not 1 <= tokens <= steps * train.batch_size * run.model.seq_len:
        raise BadRecord("commitment tokens")
    if type(rate) is not int or not 0 <= rate <= MAX_RATE:
        raise BadRecord("commitment rate")
    if not (isinstance(trace, bytes) and len(trace) in (0, 32)):
        raise BadRecord("commitment trace")
    return Commitment(record.hotkey, root, norm, tokens, steps, state, rate, trace)

"""The record of a round's inner steps that a commitment fixes: every step's loss, and the roots of local states.

Not a proof by itself: it is what an audit (`subnet.validator.replay`) repeats a piece of. The steps are cut into
segments of at most `scoring.replay_steps`, with a snapshot (`diloco.snapshot`) at each end, so that they hang together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import msgpack
import numpy as np

from subnet.config import MAX_SEGMENTS, RunConfig
from subnet.swarm.records import BadRecord

MAX_COUNT = 2**48
"""Above any number of inner steps."""
_SNAPSHOT_BYTES = 64
"""Most that a snapshot takes in a packed trace."""


@dataclass(frozen=True)
class Mark:
    """A snapshot before the step `at` of the round (after the last one: at the end).

    `lr_step`: the global inner step by which the learning rate goes there. `adam_step`: steps the optimizer has done
    since it was made. `root`: of the snapshot's leaves.
    """

    at: int
    lr_step: int
    adam_step: int
    root: bytes


@dataclass(frozen=True)
class Trace:
    """`losses`: of every batch tried, nats a token, rounded to fp32; NaN where the step was left out.

    `joined`: the mark from which on the parameters are the round's outer ones plus what was trained: 0, unless steps
    were done ahead of them (`rounds.delay`).
    """

    losses: tuple[float, ...]
    marks: tuple[Mark, ...]
    joined: int = 0

    @property
    def steps(self) -> int:
        """Inner steps done."""
        return sum(map(math.isfinite, self.losses))

    def segment(self, number: int) -> int:
        """Which segment the step `number` is in."""
        return max(i for i, mark in enumerate(self.marks[:-1]) if mark.at <= number)

    def pack(self) -> bytes:
        """Wire form; `open_trace` reads it."""
        marks = [[m.at, m.lr_step, m.adam_step, m.root] for m in self.marks]
        return bytes(msgpack.packb([np.array(self.losses, "<f4").tobytes(), marks, self.joined], use_bin_type=True))


def most_bytes(run: RunConfig) -> int:
    """More than any honest trace of this run has."""
    return 64 + 4 * run.train.inner_steps + _SNAPSHOT_BYTES * (MAX_SEGMENTS + 2)


def rounded(losses: list[float]) -> tuple[float, ...]:
    """As a trace holds them."""
    return tuple(np.array(losses, "<f4").tolist())


def open_trace(data: bytes, run: RunConfig) -> Trace:
    """Read a stranger's trace. Raises BadRecord for whatever inner steps of this run cannot give."""
    if len(data) > most_bytes(run):
        raise BadRecord("trace size")
    try:
        fields = msgpack.unpackb(data, raw=False, max_array_len=MAX_SEGMENTS + 2, max_map_len=0, max_ext_len=0)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise BadRecord("trace encoding") from error
    match fields:
        case [bytes() as packed, list() as listed, int() as joined] if len(packed) % 4 == 0:
            losses = tuple(np.frombuffer(packed, "<f4").tolist())
            marks = tuple(_mark(entry) for entry in listed)
        case _:
            raise BadRecord("trace fields")
    if not 1 <= len(losses) <= run.train.inner_steps or any(map(math.isinf, losses)):
        raise BadRecord("trace losses")
    if len(marks) < 2 or marks[0].at != 0 or marks[-1].at != len(losses):
        raise BadRecord("trace marks")
    if not all(1 <= b.at - a.at <= run.scoring.replay_steps for a, b in pairwise(marks)):
        raise BadRecord("trace marks too far apart")
    if not (type(joined) is int and 0 <= joined < (len(marks) if run.rounds.delay else 1)):
        raise BadRecord("trace joined")
    return Trace(losses, marks, joined)


def _mark(entry: object) -> Mark:
    match entry:
        case [int() as at, int() as lr_step, int() as adam_step, bytes() as root] if len(root) == 32:
            if all(type(n) is int and 0 <= n < MAX_COUNT for n in (at, lr_step, adam_step)):
                return Mark(at, lr_step, adam_step, root)
    raise BadRecord("trace mark")

"""Which state most peers hold: the count of signed digests, and the leaves in which two states differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from subnet.diloco.state import state_digest
from subnet.swarm.records import BadRecord, Record


@dataclass(frozen=True)
class Claim:
    """One hotkey's signed statement of the state it holds after a round: outer step and Merkle root."""

    hotkey: str
    step: int
    root: bytes

    @property
    def digest(self) -> bytes:
        return state_digest(self.step, self.root)


@dataclass(frozen=True)
class Majority:
    """The state held by most claimants of a round and who holds it; `claims` counts all who spoke."""

    step: int
    root: bytes
    holders: tuple[str, ...]
    claims: int

    @property
    def digest(self) -> bytes:
        return state_digest(self.step, self.root)


def claim_body(step: int, root: bytes) -> dict[str, Any]:
    """The record body published under kind ``digest``."""
    return {"step": step, "root": root}


def open_claim(record: Record) -> Claim:
    """Check the fields of a verified ``digest`` record; raises BadRecord.

    A round takes one outer step at most, and rounds are counted from the chain's first block.
    """
    step, root = record.body.get("step"), record.body.get("root")
    if record.kind != "digest" or set(record.body) != {"step", "root"}:
        raise BadRecord("digest fields")
    if type(step) is not int or not (isinstance(root, bytes) and len(root) == 32):
        raise BadRecord("digest types")
    if not 0 <= step <= record.round + 1:
        raise BadRecord("digest of an impossible step")
    return Claim(record.hotkey, step, root)


def majority(claims: Iterable[Claim], stake: Mapping[str, float]) -> Majority | None:
    """The most-held state: one vote a hotkey; a tie goes to the greater stake, then the later step, then the root.

    None when nobody spoke. A lone peer is its own majority: it cannot be told from a swarm of one.
    """
    claims = list(claims)
    votes = Counter((c.step, c.root) for c in claims)
    if not votes:
        return None
    staked = {state: sum(stake.get(c.hotkey, 0.0) for c in claims if (c.step, c.root) == state) for state in votes}
    step, root = max(votes, key=lambda state: (votes[state], staked[state], state))
    holders = tuple(sorted(c.hotkey for c in claims if (c.step, c.root) == (step, root)))
    return Majority(step, root, holders, len(claims))


def differing_runs(mine: Sequence[bytes], theirs: Sequence[bytes], longest: int) -> list[tuple[int, int]]:
    """Runs `[start, stop)` of leaves, at most `longest` each, that cover every index where the hashes differ."""
    if len(mine) != len(theirs):
        raise ValueError(f"states of {len(mine)} and {len(theirs)} leaves cannot be compared")
    runs: list[tuple[int, int]] = []
    for index, (a, b) in enumerate(zip(mine, theirs, strict=True)):
        if a == b:
            continue
        if runs and runs[-1][1] == index and index - runs[-1][0] < longest:
            runs[-1] = (runs[-1][0], index + 1)
        else:
            runs.append((index, index + 1))
    return runs

"""What goes wrong when, as a pure function of a seed: every process of a chaos run computes the same plan from it.

Not the doing: processes are struck by `chaos`, links and training by the peers themselves.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from subnet.config import RoundConfig

KILLS = {"kill peer": "peer", "kill daemon": "p2pd", "kill dht": "dht"}
"""SIGKILL, and which process gets it."""
STALLS = {"stall daemon": ("p2pd",), "stall dht": ("dht",), "stall peer": ("peer", "dht", "p2pd")}
"""SIGSTOP, later SIGCONT: a network that hangs, a bulletin board that hangs, a laptop that sleeps."""
_WEIGHTS = {
    "kill peer": 3,
    "kill daemon": 3,
    "kill dht": 1,
    "stall daemon": 5,
    "stall dht": 1,
    "stall peer": 2,
    "cut": 5,
    "isolate": 2,
    "late": 5,
    "chain": 2,
}
_BLOWS = (0, 1, 1, 2, 2, 3)
"""Blows in a round, each as likely."""
_LONGEST = 0.5
"""Share of a round that a blow lasts at most."""


@dataclass(frozen=True)
class Blow:
    """One thing that goes wrong: of this `kind`, to this peer, from block `start` on, for so many blocks.

    `kind`: one of KILLS (`blocks`: until it is started again) or STALLS; "cut" (neither of `victim` and `other` reaches
    the other), "isolate" (nobody reaches it nor it anybody), "late" (its training ends about the commit deadline),
    "chain" (it has no news of the chain). A `silent` cut swallows what is sent; another refuses it.
    """

    kind: str
    victim: int
    other: int
    start: float
    blocks: float
    silent: bool

    @property
    def end(self) -> float:
        return self.start + self.blocks

    def severs(self, a: int, b: int) -> bool:
        """Whether `a` and `b` cannot reach each other by it."""
        if self.kind == "isolate":
            return self.victim in (a, b)
        return self.kind == "cut" and {self.victim, self.other} == {a, b}

    def touches(self, peer: int) -> bool:
        return peer == self.victim or (self.kind == "cut" and peer == self.other)


@dataclass(frozen=True)
class Plan:
    """The blows of rounds `[first, stop)`; there are none in other rounds."""

    seed: int
    peers: int
    rounds: RoundConfig
    first: int
    stop: int

    def of_round(self, index: int) -> tuple[Blow, ...]:
        """What begins in this round."""
        return _drawn(self, index) if self.first <= index < self.stop else ()

    def active(self, block: float) -> Iterator[Blow]:
        """What is under way at this block."""
        now = int(block) // self.rounds.blocks
        for index in (now - 1, now):
            yield from (blow for blow in self.of_round(index) if blow.start <= block < blow.end)

    def during(self, index: int) -> Iterator[Blow]:
        """What overlaps a round."""
        start = index * self.rounds.blocks
        for blow in (*self.of_round(index - 1), *self.of_round(index)):
            if blow.end > start:
                yield blow

    def training_ends(self, peer: int, index: int) -> float:
        """The block at which this peer's training of a round ends: sometimes at, or just beyond, the last moment."""
        chance = random.Random(f"{self.seed}/{index}/{peer}/training")
        start = index * self.rounds.blocks
        if any(blow.kind == "late" and blow.victim == peer for blow in self.of_round(index)):
            return start + self.rounds.commit_end + chance.uniform(-2.0, 3.0)
        return start + self.rounds.train_end * chance.uniform(0.3, 1.0)


@lru_cache(maxsize=16)
def _drawn(plan: Plan, index: int) -> tuple[Blow, ...]:
    chance = random.Random(f"{plan.seed}/{index}/blows")
    blows = []
    for _ in range(chance.choice(_BLOWS)):
        (kind,) = chance.choices(list(_WEIGHTS), list(_WEIGHTS.values()))
        victim, other = chance.sample(range(plan.peers), 2)
        start = plan.rounds.blocks * (index + chance.random())
        blocks = plan.rounds.blocks * chance.uniform(0.03, _LONGEST)
        blows.append(Blow(kind, victim, other, start, blocks, chance.random() < 0.5))
    return tuple(blows)

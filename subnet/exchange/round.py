"""A round as its phases hand it on: what the chain says at its beginning, what this peer gathered at its end."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

import torch

from subnet.diloco.layout import Layout
from subnet.exchange.butterfly import PartResult, ReducedPart
from subnet.exchange.roster import Member, Roster
from subnet.exchange.window import Window

# A DHT look-up takes some tens of milliseconds; polling faster than this only burns the CPU that training wants.
POLL_SECONDS = 0.15


@dataclass(frozen=True)
class Facts:
    """What the chain says of a round at its first block: its beacon and the registered members."""

    beacon: bytes
    members: dict[str, Member]


@dataclass(frozen=True)
class Round:
    """A round as it begins; the chain's `facts` are read meanwhile, since training needs none of them."""

    window: Window
    facts: asyncio.Task[Facts]


@dataclass
class Update:
    """What this peer gathered: the averaged pseudo-gradient and whose contribution is in which part.

    `delta` is fp32 of the layout's size, zero in the parts that are `missing`; in hindsight (`Leadership.hindsight`)
    it is empty, and what is missing is not known. `words` holds every reducer's signed word on each part, `results` the
    one followed, gathered or not; `faults` the reducers whose part is not what the contributions give. `reduced` are
    the parts this peer made.
    """

    roster: Roster
    delta: torch.Tensor
    words: dict[int, dict[str, PartResult]] = field(default_factory=dict)
    results: dict[int, PartResult] = field(default_factory=dict)
    missing: list[int] = field(default_factory=list)
    reduced: list[ReducedPart] = field(default_factory=list)
    faults: set[str] = field(default_factory=set)

    def in_state(self, before: torch.Tensor, after: torch.Tensor, mu: float, layout: Layout) -> Update:
        """This round as it is in a state that was fetched, whatever this peer itself gathered.

        `before` and `after`: outer momentum, fp32 of the layout's size, around the one outer step u' = mu u + d. It is
        exact, so a part that was missing there is one in which d is zero.
        """
        delta = after - torch.mul(before, mu)
        spans = [layout.span(*run) for run in self.roster.parts(layout)]
        missing = [part for part, (first, last) in enumerate(spans) if not bool(delta[first:last].any())]
        return replace(self, delta=delta, missing=missing)

    def left_out(self, hotkey: str, layout: Layout) -> torch.Tensor:
        """Boolean, of the layout's size: where a selective codec left out what this hotkey, if averaged, had sent."""
        if not self.delta.numel() or hotkey not in {c.hotkey for c in self.roster.mean}:
            return torch.zeros(layout.numel, dtype=torch.bool)
        mask = self.delta == 0.0
        for part in self.missing:
            first, last = layout.span(*self.roster.parts(layout)[part])
            mask[first:last] = False
        return mask

    def carried(self, hotkey: str, layout: Layout) -> list[tuple[int, int]]:
        """Element ranges `(start, stop)` of this hotkey's contribution that the round took: they are owed no longer.

        A contribution that is listed but by the rule not averaged has done all it was for: to keep it would pile up,
        round after round, what the others learnt as well.
        """
        if hotkey in {c.hotkey for c in self.roster.commitments[self.roster.averaged :]}:
            return [(0, layout.numel)]
        ranges = []
        for part, (start, stop) in enumerate(self.roster.parts(layout)):
            result = self.results.get(part)
            if result is not None and hotkey in result.included and part not in self.missing:
                ranges.append(layout.span(start, stop))
        return ranges

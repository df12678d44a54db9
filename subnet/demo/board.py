"""What the demo knows of its neurons: the last event of each kind from their `metrics.jsonl`, and the chain's rows.

Reads files that grow while it reads them; a line without its end is left for the next look.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from subnet.telemetry import METRICS_FILE


@dataclass
class Seat:
    """One neuron of the demo: who it is, where its files are, and what it last said."""

    name: str
    role: str
    home: Path
    hotkey: str
    healthy: bool = True
    """Whether its digest counts: the free-rider's does as well, since it follows the state like everybody."""
    last: dict[str, dict[str, Any]] = field(default_factory=dict)
    rounds: list[dict[str, Any]] = field(default_factory=list)
    scores: list[dict[str, Any]] = field(default_factory=list)
    _offset: int = 0

    def read(self) -> list[dict[str, Any]]:
        """Take in the whole lines written since the last look and return their events."""
        try:
            with (self.home / METRICS_FILE).open("rb") as file:
                file.seek(self._offset)
                fresh = file.read()
        except FileNotFoundError:
            return []
        whole = fresh[: fresh.rfind(b"\n") + 1]
        self._offset += len(whole)
        events = [json.loads(line) for line in whole.splitlines()]
        for event in events:
            self.last[event["event"]] = event
            if event["event"] == "round":
                self.rounds.append(event)
            elif event["event"] == "scores":
                self.scores.append(event)
        return events


@dataclass(frozen=True)
class Pay:
    """A hotkey's row on chain: share of miner incentive, validator dividends, alpha earned since the start."""

    uid: int
    incentive: float
    dividends: float
    earned: float
    permit: bool


@dataclass
class Board:
    """All seats and the chain's latest word on each hotkey."""

    seats: list[Seat]
    pay: dict[str, Pay] = field(default_factory=dict)
    block: int = 0

    def read(self) -> list[dict[str, Any]]:
        """New events of all seats."""
        return [event for seat in self.seats for event in seat.read()]

    def held_out(self) -> list[tuple[int, float]]:
        """(round, held-out loss of the outer parameters at its start), by the first validator that measured it."""
        seen: dict[int, float] = {}
        for seat in self.seats:
            for event in seat.scores:
                seen.setdefault(event["round"], event["held_out_loss"])
        return sorted(seen.items())

    def miner_shares(self) -> dict[str, float]:
        """Share of what all miners earned, by seat name; empty before the first emission."""
        earned = {
            s.name: self.pay[s.hotkey].earned for s in self.seats if s.role != "validator" and s.hotkey in self.pay
        }
        total = sum(earned.values())
        return {name: value / total for name, value in earned.items()} if total > 0 else {}

    def digests(self) -> dict[str, str]:
        """Seat name -> state digest after the last round that every seat has finished; empty before."""
        finished = [{event["round"]: event["digest"] for event in seat.rounds} for seat in self.seats if seat.rounds]
        common = set.intersection(*map(set, finished)) if finished else set()
        if not common:
            return {}
        last = max(common)
        return {s.name: next(e["digest"] for e in s.rounds if e["round"] == last) for s in self.seats if s.rounds}

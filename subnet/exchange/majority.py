"""Which state most peers hold: the count of signed digests, whose word counts for more, and who is not believed.

Pure: what the chain says of the claimants and what failed before are arguments. Nothing is fetched here.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from subnet.diloco.state import state_digest
from subnet.exchange.history import KEPT_UPDATES
from subnet.swarm.records import BadRecord, Record

STAKE_SHARE = 0.01
"""Share of a subnet's stake that makes a hotkey's word count like an earner's: at most a hundred can have it."""
IGNORED_ROUNDS = 4
"""Rounds for which a state that its holders did not deliver is not asked for again."""
MAX_SUSPENDED = 8
"""Most rounds for which a hotkey that failed again and again is not believed."""
_MAX_ROOTS, _MAX_HOTKEYS = 64, 1024


@dataclass(frozen=True)
class Claim:
    """One hotkey's signed statement of the state it holds after a round: outer step and Merkle root.

    `updates`: roots of the updates that it keeps (`history`), the one that led to this state first.
    """

    hotkey: str
    step: int
    root: bytes
    updates: tuple[bytes, ...] = ()

    @property
    def digest(self) -> bytes:
        return state_digest(self.step, self.root)


@dataclass(frozen=True)
class Majority:
    """The state held by most claimants of a round and who holds it; `claims` counts all who spoke.

    `updates`: roots of the updates that led to it, the last one first, and which of the holders keep each.
    """

    step: int
    root: bytes
    holders: tuple[str, ...]
    claims: int
    updates: tuple[tuple[bytes, tuple[str, ...]], ...] = ()

    @property
    def digest(self) -> bytes:
        return state_digest(self.step, self.root)


def claim_body(step: int, root: bytes, updates: Sequence[bytes] = ()) -> dict[str, Any]:
    """The record body published under kind ``digest``."""
    return {"step": step, "root": root, "updates": list(updates)}


def open_claim(record: Record) -> Claim:
    """Check the fields of a verified ``digest`` record; raises BadRecord.

    A round takes one outer step at most, and rounds are counted from the chain's first block.
    """
    step, root, updates = (record.body.get(field) for field in ("step", "root", "updates"))
    if record.kind != "digest" or set(record.body) != {"step", "root", "updates"}:
        raise BadRecord("digest fields")
    if type(step) is not int or not (isinstance(root, bytes) and len(root) == 32):
        raise BadRecord("digest types")
    if not 0 <= step <= record.round + 1:
        raise BadRecord("digest of an impossible step")
    if not (isinstance(updates, list) and len(updates) <= min(step, KEPT_UPDATES)):
        raise BadRecord("digest of impossible updates")
    if not all(isinstance(update, bytes) and len(update) == 32 for update in updates):
        raise BadRecord("digest types")
    return Claim(record.hotkey, step, root, tuple(updates))


class Row(Protocol):
    """What is read of a row of the metagraph."""

    @property
    def hotkey(self) -> str: ...

    @property
    def stake(self) -> float: ...

    @property
    def incentive(self) -> float: ...


@dataclass(frozen=True)
class Standing:
    """What the chain says of a claimant. The word of the `established` comes before everybody else's."""

    established: bool = False
    stake: float = 0.0


NOBODY = Standing()


def standings(rows: Iterable[Row]) -> dict[str, Standing]:
    """Who is established: whoever earns incentive or holds a hundredth of the stake; before anybody earns, nobody.

    Fresh registrations cost little, and a swarm of them must not outvote those who have shown work.
    """
    rows = list(rows)
    anybody = any(row.incentive > 0 for row in rows)
    share = STAKE_SHARE * sum(row.stake for row in rows)
    return {r.hotkey: Standing(anybody and (r.incentive > 0 or r.stake >= share > 0), r.stake) for r in rows}


def majority(claims: Iterable[Claim], standing: Mapping[str, Standing], own: Claim | None = None) -> Majority | None:
    """The most-held state: one vote a hotkey, the votes of the established first and everybody's next.

    A tie goes to the later step, then to the greater stake, then to the root: a peer that came back with an old state
    must not take the others' work with it, whatever its stake. `own` is this peer's state where nobody has heard of it
    yet; it replaces its earlier claim, and what else is held by as many does not move this peer unless it is later.

    None when nobody spoke. A lone peer is its own majority: it cannot be told from a swarm of one.
    """
    by_hotkey = {claim.hotkey: claim for claim in claims} | ({own.hotkey: own} if own is not None else {})
    held: defaultdict[tuple[int, bytes], list[Claim]] = defaultdict(list)
    for claim in by_hotkey.values():
        held[claim.step, claim.root].append(claim)
    if not held:
        return None

    def rank(state: tuple[int, bytes]) -> tuple[int, int, int, bool, float, bytes]:
        step, root = state
        known = [standing.get(hotkey, NOBODY) for hotkey in sorted(c.hotkey for c in held[state])]
        mine = own is not None and (own.step, own.root) == state
        return sum(s.established for s in known), len(known), step, mine, sum(s.stake for s in known), root

    step, root = max(held, key=rank)
    claimants = held[step, root]
    return Majority(step, root, tuple(sorted(c.hotkey for c in claimants)), len(by_hotkey), _kept(claimants))


def _kept(claims: Sequence[Claim]) -> tuple[tuple[bytes, tuple[str, ...]], ...]:
    """The updates that most claimants of one state name, the last one first, and who keeps each."""
    kept: list[tuple[bytes, tuple[str, ...]]] = []
    while True:
        at = len(kept)
        claims = [claim for claim in claims if len(claim.updates) > at]
        if not claims:
            return tuple(kept)
        counts = Counter(claim.updates[at] for claim in claims)
        root = max(counts, key=lambda update: (counts[update], update))
        claims = [claim for claim in claims if claim.updates[at] == root]
        kept.append((root, tuple(sorted(claim.hotkey for claim in claims))))


class Undelivered:
    """What was claimed and could not be had, for a bounded while: it is not asked for again at once.

    A state is ignored for some rounds unless somebody new claims it. A hotkey may fail once; from the second time in
    a row on its claims do not count for two, four, eight rounds, whatever state they name.
    """

    def __init__(self) -> None:
        self._states: OrderedDict[bytes, tuple[frozenset[str], int]] = OrderedDict()
        self._hotkeys: OrderedDict[str, tuple[int, int]] = OrderedDict()

    def failed(self, target: Majority, round_index: int) -> None:
        """The holders of `target` did not deliver it in this round."""
        self._states.pop(target.digest, None)
        self._states[target.digest] = frozenset(target.holders), round_index + IGNORED_ROUNDS
        for hotkey in target.holders:
            times = self._hotkeys.pop(hotkey, (0, 0))[0] + 1
            rest = 0 if times == 1 else min(2 ** min(times - 1, 30), MAX_SUSPENDED)
            self._hotkeys[hotkey] = times, round_index + rest
        for kept, most in ((self._states, _MAX_ROOTS), (self._hotkeys, _MAX_HOTKEYS)):
            while len(kept) > most:
                kept.popitem(last=False)

    def delivered(self, target: Majority) -> None:
        """The holders of `target` kept their word."""
        for hotkey in target.holders:
            self._hotkeys.pop(hotkey, None)

    def believable(self, claims: Iterable[Claim], round_index: int) -> list[Claim]:
        """The claims that count in this round."""
        claims = [c for c in claims if round_index > self._hotkeys.get(c.hotkey, (0, -1))[1]]
        holders: defaultdict[bytes, set[str]] = defaultdict(set)
        for claim in claims:
            holders[claim.digest].add(claim.hotkey)
        return [c for c in claims if not self._ignored(c.digest, holders[c.digest], round_index)]

    def _ignored(self, digest: bytes, holders: set[str], round_index: int) -> bool:
        failed, until = self._states.get(digest, (frozenset(), -1))
        return round_index <= until and holders <= failed

"""Who is averaged this round, in which order, and who says so.

A rotating leader publishes the list of signed commitments it verified. It can leave one out for a round; it can
neither forge nor alter one, because the list carries the signed records themselves. Order, leaders and the averaging
rule are pure functions of the round's beacon and of the metagraph at the round's first block.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import msgpack

from subnet.config import RoundConfig, RunConfig
from subnet.diloco.layout import Layout
from subnet.diloco.merkle import leaf_hash
from subnet.diloco.merkle import root as merkle_root
from subnet.exchange.commitment import Commitment, open_commitment
from subnet.swarm.records import MAX_RECORD_BYTES, BadRecord, open_record
from subnet.swarm.traffic import UNKNOWN_RATE

SPREAD = 4
"""How many times larger or smaller than the median's a reducer's part may be."""
_ROSTER_OVERHEAD = 256


@dataclass(frozen=True)
class Member:
    """What the averaging and leader rules read of a registered hotkey (a metagraph row)."""

    hotkey: str
    incentive: float
    permit: bool


@dataclass(frozen=True)
class Roster:
    """A verified roster: commitments in averaging order; the first `averaged` of them enter the mean.

    Of those the first `earning` may reduce (None: all).
    """

    round: int
    leader: str
    root: bytes
    state: bytes
    commitments: tuple[Commitment, ...]
    averaged: int
    earning: int | None = None

    @property
    def mean(self) -> tuple[Commitment, ...]:
        """The averaged commitments."""
        return self.commitments[: self.averaged]

    @property
    def reducing(self) -> tuple[Commitment, ...]:
        """The i-th reduces part i: those of the earning that others can dial; any that can, or all, if there is none.

        A part is a share of the model for one round: newcomers, and whoever was caught and is not paid, do not get one.
        """
        able = tuple(c for c in self.mean if c.rate)
        return tuple(c for c in self.mean[: self.earning] if c.rate) or able or self.mean

    def parts(self, layout: Layout) -> list[tuple[int, int]]:
        """The leaves `(start, stop)` of every part: sizes are as the reducers' declared upload rates.

        A reducer sends its part to everybody else, so with equal sizes all would wait for the slowest.
        """
        return layout.cut(shares([c.rate for c in self.reducing]))

    def reducers(self, part: int, redundancy: int = 1) -> list[str]:
        """The hotkeys that reduce a part, `redundancy` of them: its own and the next in averaging order."""
        able = self.reducing
        return [able[(part + i) % len(able)].hotkey for i in range(min(redundancy, len(able)))]

    def duties(self, hotkey: str, parts: int, redundancy: int = 1) -> list[int]:
        """Of so many parts, those that it reduces: none where others cannot dial it, or where it is not averaged."""
        return [part for part in range(parts) if hotkey in self.reducers(part, redundancy)]


def shares(rates: Sequence[int]) -> list[int]:
    """The parts' sizes, relative to each other, by what their reducers can upload (kB/s; UNKNOWN_RATE and 0: unknown).

    In proportion, filled up or cut off at a SPREAD-th and SPREAD times the (lower) median of the known rates, which
    stands for the unknown ones as well: there is little to gain by declaring a wrong one.
    """
    known = sorted(rate for rate in rates if rate > UNKNOWN_RATE) or [1]
    middle = known[(len(known) - 1) // 2]
    full = (SPREAD * (rate if rate > UNKNOWN_RATE else middle) for rate in rates)
    return [min(max(share, middle), SPREAD * SPREAD * middle) for share in full]


def draw(beacon: bytes, hotkey: str) -> bytes:
    """The hotkey's place in this round's order: blake2b-256 of beacon and hotkey, compared as bytes."""
    return hashlib.blake2b(beacon + hotkey.encode(), digest_size=32, person=b"sn38/order").digest()


def leader_order(beacon: bytes, members: Iterable[Member]) -> list[str]:
    """Hotkeys in the order they may lead: validators with a permit first, then the others, each by `draw`."""
    return [m.hotkey for m in sorted(members, key=lambda m: (not m.permit, draw(beacon, m.hotkey)))]


def averaging_order(
    beacon: bytes, hotkeys: Sequence[str], members: dict[str, Member], rounds: RoundConfig
) -> tuple[list[str], int, int]:
    """Order `hotkeys` for a roster and say how many of them are averaged, and how many of those may reduce.

    Until `rounds.min_incentive_earners` registered hotkeys earn incentive, everybody is averaged and reduces. From then
    on the earners among `hotkeys` do, and `rounds.newcomers` of the others, by draw, are averaged; the rest is listed
    and only scored.
    """
    order = sorted(hotkeys, key=lambda h: draw(beacon, h))
    earners = sum(m.incentive > 0 for m in members.values())
    if earners < rounds.min_incentive_earners:
        return order, len(order), len(order)
    earning = [h for h in order if h in members and members[h].incentive > 0]
    others = [h for h in order if h not in set(earning)]
    return earning + others, len(earning) + min(rounds.newcomers, len(others)), len(earning)


def max_roster_bytes(rounds: RoundConfig) -> int:
    """Largest roster blob a peer accepts."""
    return _ROSTER_OVERHEAD + rounds.max_members * (MAX_RECORD_BYTES + 8)


def pack_roster(state: bytes, averaged: int, records: Sequence[bytes]) -> bytes:
    """The roster blob: the state digest it stands on, how many are averaged, the signed ``commit`` records in order."""
    return bytes(msgpack.packb({"state": state, "averaged": averaged, "commits": list(records)}, use_bin_type=True))


def open_roster(
    data: bytes,
    *,
    round_index: int,
    leader: str,
    run: RunConfig,
    run_id: bytes,
    beacon: bytes,
    members: dict[str, Member],
    verify: Callable[[str, bytes, bytes], bool],
) -> Roster:
    """Check a roster blob: every commitment's signature and fields, the order, and the averaging rule.

    Raises:
        BadRecord: the roster breaks any rule; the caller turns to the next leader's.
    """
    if len(data) > max_roster_bytes(run.rounds):
        raise BadRecord("roster size")
    try:
        body = msgpack.unpackb(data, raw=False, strict_map_key=True, max_array_len=run.rounds.max_members)
    except (ValueError, msgpack.UnpackException) as error:
        raise BadRecord("roster encoding") from error
    if not isinstance(body, dict) or set(body) != {"state", "averaged", "commits"}:
        raise BadRecord("roster fields")
    state, averaged, commits = body["state"], body["averaged"], body["commits"]
    if not (isinstance(state, bytes) and len(state) == 32 and type(averaged) is int and isinstance(commits, list)):
        raise BadRecord("roster types")
    commitments: list[Commitment] = []
    for item in commits:
        if not isinstance(item, bytes):
            raise BadRecord("roster entry type")
        record = open_record(item, run_id=run_id, verify=verify)
        if record.round != round_index or record.hotkey not in members:
            raise BadRecord("roster entry of another round or an unregistered hotkey")
        commitment = open_commitment(record, run)
        if commitment.state != state:
            raise BadRecord("roster entry from another state")
        commitments.append(commitment)
    hotkeys = [c.hotkey for c in commitments]
    if len(set(hotkeys)) != len(hotkeys):
        raise BadRecord("roster lists a hotkey twice")
    if averaged < 1:
        raise BadRecord("roster lists nobody")
    order, number, earning = averaging_order(beacon, hotkeys, members, run.rounds)
    if (hotkeys, averaged) != (order, number):
        raise BadRecord("roster order or averaging rule")
    root = merkle_root([leaf_hash(data)])
    return Roster(round_index, leader, root, state, tuple(commitments), averaged, earning)

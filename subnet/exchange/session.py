"""The network phases of one round for one peer: commit, roster, scatter, reduce, gather.

Every wait ends at a block deadline; a peer that vanished costs the others its contribution or its part, never the
round. Nothing of a contribution enters the blob store before a roster that lists commitments has been accepted.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from subnet.chain.clock import BlockClock
from subnet.chain.keys import Signer, verify
from subnet.config import RunConfig
from subnet.diloco.codec import Codec, CodecError
from subnet.diloco.layout import Layout
from subnet.diloco.merkle import owned
from subnet.exchange.butterfly import (
    PartResult,
    ReducedPart,
    open_contribution_part,
    open_part,
    open_reduced_part,
    part_body,
    reduce,
)
from subnet.exchange.commitment import Commitment, Contribution, open_commitment
from subnet.exchange.roster import (
    Member,
    Roster,
    averaging_order,
    leader_order,
    max_roster_bytes,
    open_roster,
    pack_roster,
)
from subnet.exchange.window import Window
from subnet.swarm.blobs import FetchError
from subnet.swarm.network import Swarm
from subnet.swarm.records import BadRecord, Record
from subnet.waiting import end

log = logging.getLogger(__name__)

# A DHT look-up takes some tens of milliseconds; polling faster than this only burns the CPU that training wants.
POLL_SECONDS = 0.15
MAX_COUNTED = 4096
"""Pairs of sender and reason that are counted apart."""


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

    `delta` is fp32 of the layout's size, zero in the parts that are `missing`; `results` holds the signed word on
    each part that was published, gathered or not. In hindsight (`Exchange.hindsight`) it is empty: nothing to apply.
    """

    roster: Roster
    delta: torch.Tensor
    results: dict[int, PartResult] = field(default_factory=dict)
    missing: list[int] = field(default_factory=list)
    reduced: ReducedPart | None = None

    def carried(self, hotkey: str, layout: Layout, agreed: bool) -> list[tuple[int, int]]:
        """Element ranges `(start, stop)` of this hotkey's contribution that the round took: they are owed no longer.

        `agreed` is whether the state this update led to is the majority's; if not, this peer's own view of the round
        was the wrong one, and the reducers' signed words decide. A contribution that is listed but by the rule not
        averaged has done all it was for: to keep it would pile up, round after round, what the others learnt as well.
        """
        if hotkey in {c.hotkey for c in self.roster.commitments[self.roster.averaged :]}:
            return [(0, layout.numel)]
        ranges = []
        for part, (start, stop) in enumerate(layout.parts(self.roster.averaged)):
            result = self.results.get(part)
            if result is not None and hotkey in result.included and (not agreed or part not in self.missing):
                ranges.append(layout.span(start, stop))
        return ranges


class Exchange:
    """Runs the phases; `dropped` counts what peers sent that was refused, by (hotkey, reason)."""

    def __init__(
        self,
        run: RunConfig,
        run_id: bytes,
        layout: Layout,
        codec: Codec,
        swarm: Swarm,
        clock: BlockClock,
        signer: Signer,
    ) -> None:
        self.run = run
        self.run_id = run_id
        self.layout = layout
        self.codec = codec
        self.swarm = swarm
        self.clock = clock
        self.signer = signer
        self.dropped: Counter[tuple[str, str]] = Counter()
        self._told: set[tuple[int, str]] = set()

    async def commit(self, round_: Round, contribution: Contribution, state: bytes) -> bool:
        """Publish the commitment to `contribution`, trained from the state with digest `state`; False when too late."""
        if self.clock.block() >= round_.window.commit_end:
            return False
        commitment = Commitment(
            self.signer.ss58,
            owned(contribution.root, self.signer.ss58),
            contribution.norm,
            contribution.tokens,
            contribution.steps,
            state,
        )
        return await self._publish("commit", round_.window, commitment.body())

    async def agree_on_roster(self, round_: Round, contribution: Contribution | None, state: bytes) -> Roster | None:
        """Lead when it is this peer's turn; accept the roster of the first leader in line that published a good one.

        The roster of the very first live leader is taken at once; any other only at the roster deadline, when it is
        certain that everybody had the time to see a better one. Returns None when there is none by then.
        """
        window = round_.window
        await self.clock.wait_until(window.commit_end)
        facts = await round_.facts
        live = {self.signer.ss58, *self.swarm.peers}
        order = leader_order(facts.beacon, facts.members.values())
        in_line = [hotkey for hotkey in order if hotkey in live]
        turn = in_line.index(self.signer.ss58) if self.signer.ss58 in in_line else len(in_line)
        my_turn = window.commit_end + turn * self.run.rounds.leader_blocks
        # Whoever comes late may still learn what the others agreed on, and follow.
        late = self.clock.block() >= window.roster_end
        deadline = window.scatter_end if late else window.roster_end
        opening: dict[str, asyncio.Task[Roster | None]] = {}
        while True:
            for record in await self.swarm.records("roster", window.round):
                if record.hotkey in facts.members and record.hotkey not in opening:
                    work = self._open_roster(window, facts, record, state, deadline)
                    opening[record.hotkey] = asyncio.create_task(work)
            done = {hotkey: task.result() for hotkey, task in opening.items() if task.done()}
            good = {hotkey: roster for hotkey, roster in done.items() if roster is not None}
            block = self.clock.block()
            if (in_line and in_line[0] in good) or block >= deadline:
                break
            if late and good and len(done) == len(opening):
                break
            if block >= my_turn and not late and self.signer.ss58 not in opening and not good:
                opening[self.signer.ss58] = asyncio.create_task(self._lead(window, facts, state))
                await opening[self.signer.ss58]
                continue
            await asyncio.sleep(POLL_SECONDS)
        await end(opening.values())
        chosen = next((good[hotkey] for hotkey in order if hotkey in good), None)
        if contribution is not None:
            self.swarm.store.add(
                owned(contribution.root, self.signer.ss58),
                contribution.leaves,
                not_before_block=window.commit_end,
                keep_until_round=window.round + 1,
                owner=self.signer.ss58,
            )
        return chosen

    async def reduce_part(self, round_: Round, roster: Roster, contribution: Contribution) -> ReducedPart | None:
        """Pull, check, average and offer the part this peer reduces; None when there is none, or nobody delivered."""
        window = round_.window
        runs = self.layout.parts(roster.averaged)
        index = next((i for i, c in enumerate(roster.mean[: len(runs)]) if c.hotkey == self.signer.ss58), None)
        if index is None:
            return None
        start, stop = runs[index]
        pulls = [self._pull_part(window, c, contribution, start, stop) for c in roster.mean]
        parts = await asyncio.gather(*pulls)
        if all(part is None for part in parts):
            return None  # not even its own: it has started again since it committed
        reduced = await asyncio.to_thread(reduce, self.codec, self.layout, roster, start, stop, parts)
        self.swarm.store.add(reduced.root, reduced.leaves, keep_until_round=window.round + 1)
        await self._publish("part", window, part_body(index, reduced.root, roster, reduced.included), str(index))
        return reduced

    async def gather(self, round_: Round, roster: Roster, reduced: ReducedPart | None) -> Update:
        """Pull every reduced part from its reducer or from whoever has it already, until the gather deadline."""
        runs = self.layout.parts(roster.averaged)
        update = Update(roster, torch.zeros(self.layout.numel), reduced=reduced)
        watch = asyncio.create_task(self._watch_results(round_.window, roster, update.results))
        try:
            parts = await asyncio.gather(
                *(self._gather_part(round_.window, roster, update.results, part, *run) for part, run in enumerate(runs))
            )
        finally:
            await end([watch])
        for part, values in enumerate(parts):
            if values is None:
                update.missing.append(part)
            else:
                first, last = self.layout.span(*runs[part])
                update.delta[first:last] = values
        return update

    async def hindsight(self, round_: Round, state: bytes) -> Update | None:
        """Who was averaged in a round of which this peer saw no roster in time; None when that cannot be learnt.

        The state comes by repair; this says what of the peer's contribution is in it, and is not to be sent again.
        """
        window, facts = round_.window, await round_.facts
        deadline = window.end + self.run.rounds.leader_blocks
        words = [r for r in await self.swarm.records("part", window.round) if r.hotkey in facts.members]
        followed = Counter(root for r in words if isinstance(root := r.body.get("roster"), bytes))
        offers = [r for r in await self.swarm.records("roster", window.round) if r.hotkey in facts.members]
        offers = [r for r in offers if isinstance(root := r.body.get("root"), bytes) and root in followed]
        for offer in sorted(offers, key=lambda r: followed[r.body["root"]], reverse=True):
            roster = await self._open_roster(window, facts, offer, state, deadline)
            if roster is None:
                continue
            update = Update(roster, torch.zeros(0), missing=list(range(roster.averaged)))
            for word in words:
                with contextlib.suppress(BadRecord):  # somebody else's roster, as likely as not
                    result = open_part(word, roster)
                    update.results.setdefault(result.part, result)
            return update
        return None

    async def pull_contribution(self, window: Window, commitment: Commitment, deadline_block: float) -> list[bytes]:
        """Every leaf of a contribution, verified against its root. Raises FetchError when it cannot be had in time."""
        return await self.swarm.fetch_leaves(
            [commitment.hotkey],
            commitment.root,
            self.layout.num_leaves,
            0,
            self.layout.num_leaves,
            self._leaf_limit,
            timeout=self.clock.seconds_until(deadline_block),
            owner=commitment.hotkey,
        )

    def drop(self, window: Window, hotkey: str, error: Exception) -> None:
        """Count what a peer sent that was refused, or did not send; say so once per sender and round."""
        reason = "not delivered" if isinstance(error, FetchError) else str(error)
        if len(self.dropped) < MAX_COUNTED or (hotkey, reason) in self.dropped:
            self.dropped[hotkey, reason] += 1
        if (window.round, hotkey) not in self._told:
            self._told = {told for told in self._told if told[0] >= window.round - 1} | {(window.round, hotkey)}
            log.warning("round %d: dropped a message of %s: %s", window.round, hotkey, error)

    async def _publish(self, kind: str, window: Window, body: dict, subkey: str = "") -> bool:
        return await self.swarm.publish(kind, window.round, body, subkey=subkey)

    async def _lead(self, window: Window, facts: Facts, state: bytes) -> Roster | None:
        """Collect and verify this round's commitments and publish the list; None when there is nothing to list."""
        commitments: dict[str, Record] = {}
        for record in await self.swarm.records("commit", window.round):
            if record.hotkey not in facts.members:
                continue
            try:
                if open_commitment(record, self.run).state == state:
                    commitments[record.hotkey] = record
                else:
                    self.drop(window, record.hotkey, BadRecord("commitment from another state"))
            except BadRecord as error:
                self.drop(window, record.hotkey, error)
        hotkeys = sorted(commitments)[: self.run.rounds.max_members]
        order, averaged = averaging_order(facts.beacon, hotkeys, facts.members, self.run.rounds)
        if not averaged:
            return None
        blob = pack_roster(state, averaged, [commitments[hotkey].pack() for hotkey in order])
        roster = await asyncio.to_thread(self._parse_roster, window, facts, self.signer.ss58, blob)
        self.swarm.store.add(roster.root, [blob], keep_until_round=window.round + 1)
        await self._publish("roster", window, {"root": roster.root, "size": len(blob)})
        return roster

    def _parse_roster(self, window: Window, facts: Facts, leader: str, blob: bytes) -> Roster:
        return open_roster(
            blob,
            round_index=window.round,
            leader=leader,
            run=self.run,
            run_id=self.run_id,
            beacon=facts.beacon,
            members=facts.members,
            verify=verify,
        )

    async def _open_roster(
        self, window: Window, facts: Facts, record: Record, state: bytes, deadline: float
    ) -> Roster | None:
        root, size = record.body.get("root"), record.body.get("size")
        try:
            if not (isinstance(root, bytes) and type(size) is int and 0 < size <= max_roster_bytes(self.run.rounds)):
                raise BadRecord("roster record")
            timeout = self.clock.seconds_until(deadline)
            sources = [record.hotkey, *self.swarm.peers]
            (blob,) = await self.swarm.fetch_leaves(sources, root, 1, 0, 1, lambda _: size, timeout=timeout)
            # Hundreds of signatures: the loop has deadlines to keep meanwhile.
            roster = await asyncio.to_thread(self._parse_roster, window, facts, record.hotkey, blob)
            if roster.state != state:
                raise BadRecord("roster of another state")
        except (BadRecord, FetchError) as error:
            self.drop(window, record.hotkey, error)
            return None
        self.swarm.store.add(root, [blob], keep_until_round=window.round + 1)
        return roster

    async def _pull_part(
        self, window: Window, commitment: Commitment, own: Contribution, start: int, stop: int
    ) -> torch.Tensor | None:
        """One contributor's leaves of my part as fp32, or None when late or refused."""
        try:
            leaves: Sequence[bytes]
            if commitment.hotkey == self.signer.ss58 and commitment.root == owned(own.root, self.signer.ss58):
                leaves = own.leaves[start:stop]
            else:
                leaves = await self.swarm.fetch_leaves(
                    [commitment.hotkey],
                    commitment.root,
                    self.layout.num_leaves,
                    start,
                    stop,
                    self._leaf_limit,
                    timeout=self.clock.seconds_until(window.scatter_end),
                    owner=commitment.hotkey,
                )
            return open_contribution_part(self.codec, self.layout, commitment, leaves, start, stop)
        except (BadRecord, FetchError, CodecError) as error:
            self.drop(window, commitment.hotkey, error)
            return None

    async def _watch_results(self, window: Window, roster: Roster, results: dict[int, PartResult]) -> None:
        """Fill `results` with the signed word on each part as it appears."""
        refused: set[bytes] = set()
        while len(results) < len(self.layout.parts(roster.averaged)):
            for record in await self.swarm.records("part", window.round):
                if record.signature in refused:
                    continue
                try:
                    result = open_part(record, roster)
                except BadRecord as error:
                    refused.add(record.signature)
                    self.drop(window, record.hotkey, error)
                    continue
                results.setdefault(result.part, result)
            await asyncio.sleep(POLL_SECONDS)

    async def _gather_part(
        self, window: Window, roster: Roster, results: dict[int, PartResult], part: int, start: int, stop: int
    ) -> torch.Tensor | None:
        """The averaged part `[start, stop)` as fp32, tried again until the gather deadline; None when it never came."""
        while self.clock.block() < window.gather_end:
            if part in results:
                result = results[part]
                try:
                    leaves = self.swarm.store.get(result.root) or await self._pull_reduced(window, result, start, stop)
                    values = open_reduced_part(self.codec, self.layout, roster, result, leaves, start, stop)
                except FetchError as error:
                    self.drop(window, result.reducer, error)
                except (CodecError, BadRecord) as error:
                    # What its reducer signed for cannot be used, and asking again would bring the same bytes.
                    self.drop(window, result.reducer, error)
                    return None
                else:
                    self.swarm.store.add(result.root, leaves, keep_until_round=window.round + 1)
                    return values
            await asyncio.sleep(POLL_SECONDS)
        return None

    async def _pull_reduced(self, window: Window, result: PartResult, start: int, stop: int) -> list[bytes]:
        others = [hotkey for hotkey in self.swarm.peers if hotkey != result.reducer]
        return await self.swarm.fetch_leaves(
            [result.reducer, *others],
            result.root,
            stop - start,
            0,
            stop - start,
            lambda leaf: self._leaf_limit(start + leaf),
            timeout=self.clock.seconds_until(window.gather_end),
        )

    def _leaf_limit(self, leaf: int) -> int:
        first, last = self.layout.leaves[leaf]
        return self.codec.max_encoded_size(last - first)

"""Who is averaged this round: lead when it is this peer's turn, otherwise follow the first good leader in line.

The list itself and its rules are in `roster`. A leader that is gone or lies costs time, never the round.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter

import torch

from subnet.chain.clock import BlockClock
from subnet.chain.keys import verify
from subnet.config import RunConfig
from subnet.exchange.butterfly import open_part
from subnet.exchange.commitment import Commitment, open_commitment
from subnet.exchange.refusals import Refusals
from subnet.exchange.roster import (
    Roster,
    averaging_order,
    leader_order,
    max_roster_bytes,
    open_roster,
    pack_roster,
)
from subnet.exchange.round import POLL_SECONDS, Facts, Round, Update
from subnet.exchange.window import Window
from subnet.swarm.blobs import FetchError
from subnet.swarm.network import Swarm
from subnet.swarm.records import BadRecord, Record
from subnet.waiting import end


class Leadership:
    """One peer's part in agreeing on rosters."""

    def __init__(
        self, run: RunConfig, run_id: bytes, swarm: Swarm, clock: BlockClock, own: str, refusals: Refusals
    ) -> None:
        self.run = run
        self.run_id = run_id
        self.swarm = swarm
        self.clock = clock
        self.own = own
        self.refusals = refusals

    async def agree(self, round_: Round, state: bytes) -> Roster | None:
        """Lead when it is this peer's turn; accept the roster of the first leader in line that published a good one.

        The roster of the very first live leader is taken at once; any other only at the roster deadline, when it is
        certain that everybody had the time to see a better one. Returns None when there is none by then.
        """
        window = round_.window
        await self.clock.wait_until(window.commit_end)
        facts = await round_.facts
        live = {self.own, *self.swarm.peers}
        order = leader_order(facts.beacon, facts.members.values())
        in_line = [hotkey for hotkey in order if hotkey in live]
        turn = in_line.index(self.own) if self.own in in_line else len(in_line)
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
            if block >= my_turn and not late and self.own not in opening and not good:
                opening[self.own] = asyncio.create_task(self._lead(window, facts, state))
                await opening[self.own]
                continue
            await asyncio.sleep(POLL_SECONDS)
        await end(opening.values())
        return next((good[hotkey] for hotkey in order if hotkey in good), None)

    async def hindsight(self, round_: Round, state: bytes) -> Update | None:
        """Who was averaged in a round of which this peer saw no roster in time; None when that cannot be learnt.

        The state comes by repair; with it (`Update.in_state`) this says what of the peer's contribution is in it.
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
            update = Update(roster, torch.zeros(0))
            for word in words:
                with contextlib.suppress(BadRecord):  # somebody else's roster, as likely as not
                    result = open_part(word, roster, self.run.aggregate.redundancy)
                    update.results.setdefault(result.part, result)
            return update
        return None

    async def commitments(self, window: Window, facts: Facts, state: bytes) -> dict[str, tuple[Record, Commitment]]:
        """By hotkey, the members' commitments to what was trained from `state` that are known here by now."""
        found: dict[str, tuple[Record, Commitment]] = {}
        for record in await self.swarm.records("commit", window.round):
            if record.hotkey not in facts.members:
                continue
            try:
                commitment = open_commitment(record, self.run)
                if commitment.state == state:
                    found[record.hotkey] = record, commitment
                else:
                    self.refusals.drop(window, record.hotkey, BadRecord("commitment from another state"))
            except BadRecord as error:
                self.refusals.drop(window, record.hotkey, error)
        return found

    async def _lead(self, window: Window, facts: Facts, state: bytes) -> Roster | None:
        """Collect and verify this round's commitments and publish the list; None when there is nothing to list."""
        commitments = await self.commitments(window, facts, state)
        hotkeys = sorted(commitments)[: self.run.rounds.max_members]
        order, averaged, _ = averaging_order(facts.beacon, hotkeys, facts.members, self.run.rounds)
        if not averaged:
            return None
        blob = pack_roster(state, averaged, [commitments[hotkey][0].pack() for hotkey in order])
        roster = await asyncio.to_thread(self._parse_roster, window, facts, self.own, blob)
        self.swarm.store.add(roster.root, [blob], keep_until_round=window.round + 1)
        await self.swarm.publish("roster", window.round, {"root": roster.root, "size": len(blob)})
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
            self.refusals.drop(window, record.hotkey, error)
            return None
        self.swarm.store.add(root, [blob], keep_until_round=window.round + 1)
        return roster

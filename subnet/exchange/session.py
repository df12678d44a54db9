"""The network phases of one round for one peer: commit, roster, scatter, reduce, gather.

Every wait ends at a block deadline; a peer that vanished costs the others its contribution or its part, never the
round. Nothing of a contribution enters the blob store before a roster that lists commitments has been accepted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import torch

from subnet.chain.clock import BlockClock
from subnet.chain.keys import Signer
from subnet.config import RunConfig
from subnet.diloco.codec import CodecError
from subnet.diloco.layout import Layout
from subnet.diloco.merkle import owned
from subnet.diloco.scheme import Scheme
from subnet.exchange.butterfly import (
    PartResult,
    Read,
    ReducedPart,
    check_contribution_part,
    encoded,
    open_reduced_part,
    part_body,
    reduce,
)
from subnet.exchange.commitment import Commitment, Contribution
from subnet.exchange.leadership import Leadership
from subnet.exchange.referee import made_of, ranked
from subnet.exchange.refusals import Refusals
from subnet.exchange.roster import Roster
from subnet.exchange.round import Round, Update
from subnet.exchange.window import Window
from subnet.exchange.words import Words
from subnet.swarm.blobs import FetchError
from subnet.swarm.network import Swarm
from subnet.swarm.records import BadRecord
from subnet.waiting import end


class Exchange:
    """Runs the phases; `refusals` counts what peers sent that was not used."""

    def __init__(
        self, run: RunConfig, run_id: bytes, layout: Layout, swarm: Swarm, clock: BlockClock, signer: Signer
    ) -> None:
        self.run = run
        self.scheme = Scheme.of(run, layout)
        self.swarm = swarm
        self.clock = clock
        self.own = signer.ss58
        self.refusals = Refusals()
        self.leadership = Leadership(run, run_id, swarm, clock, self.own, self.refusals)
        self._mine: tuple[bytes, Sequence[bytes]] = (b"", ())

    @property
    def redundancy(self) -> int:
        """How many peers reduce every part."""
        return self.run.aggregate.redundancy

    async def commit(self, round_: Round, contribution: Contribution, state: bytes) -> bool:
        """Publish the commitment to `contribution`, trained from the state with digest `state`; False when too late."""
        window = round_.window
        if self.clock.block() >= window.commit_end:
            return False
        commitment = Commitment(
            self.own,
            owned(contribution.root, self.own),
            contribution.norm,
            contribution.tokens,
            contribution.steps,
            state,
            self.swarm.rate,
            contribution.trace,
        )
        return await self.swarm.publish("commit", window.round, commitment.body())

    async def committed(self, round_: Round, state: bytes) -> list[Commitment]:
        """What members have committed to by now, trained from the state with digest `state`, whoever lists it."""
        found = await self.leadership.commitments(round_.window, await round_.facts, state)
        return [commitment for _, commitment in found.values()]

    async def agree_on_roster(self, round_: Round, contribution: Contribution | None, state: bytes) -> Roster | None:
        """The roster that this peer follows (see `Leadership.agree`); from then on its `contribution` is on offer."""
        window = round_.window
        await self.swarm.be_reachable(self.clock.seconds_until(window.commit_end))
        roster = await self.leadership.agree(round_, state)
        if contribution is not None:
            self._mine = (owned(contribution.root, self.own), contribution.leaves)
            self.swarm.store.add(
                *self._mine,
                tree=contribution.tree,
                not_before_block=window.commit_end,
                keep_until_round=window.round + 1,
                owner=self.own,
            )
        return roster

    async def reduce(self, round_: Round, roster: Roster) -> list[ReducedPart]:
        """Pull, check, aggregate and offer the parts this peer reduces; none of which nobody delivered anything."""
        window, runs = round_.window, roster.parts(self.scheme.layout)
        duties = roster.duties(self.own, len(runs), self.redundancy)
        made = await asyncio.gather(*(self._reduce_part(window, roster, part, *runs[part]) for part in duties))
        return [part for part in made if part is not None]

    async def gather(self, round_: Round, roster: Roster, reduced: Sequence[ReducedPart]) -> Update:
        """Pull every reduced part from its reducers or from whoever has it already, until the gather deadline."""
        window, layout = round_.window, self.scheme.layout
        runs = roster.parts(layout)
        words = Words(self.swarm, self.clock, self.refusals, window, roster, self.redundancy)
        update = Update(roster, torch.empty(layout.numel), words=words.heard, reduced=list(reduced))
        listening = asyncio.create_task(words.listen(len(runs)))
        try:
            pulls = [self._gather_part(window, update, words, part, *run) for part, run in enumerate(runs)]
            there = await asyncio.gather(*pulls)
        finally:
            await end([listening])
        for part, run in enumerate(runs):
            for hotkey in roster.reducers(part, self.redundancy):
                if hotkey in update.words.get(part, {}):
                    update.results.setdefault(part, update.words[part][hotkey])
            if not there[part]:
                update.missing.append(part)
                update.delta[slice(*layout.span(*run))] = 0.0
        return update

    def leaves_of(self, update: Update) -> list[bytes]:
        """A gathered round's reduced leaves, one for each of the layout's, empty where a part is missing."""
        leaves: list[bytes] = []
        for part, (start, stop) in enumerate(update.roster.parts(self.scheme.layout)):
            there = None if part in update.missing else self.swarm.store.get(update.results[part].root)
            leaves += there or [b""] * (stop - start)
        return leaves

    async def pull_contribution(self, window: Window, commitment: Commitment, deadline_block: float) -> Sequence[bytes]:
        """Every leaf of a contribution, verified against its root. Raises FetchError when it cannot be had in time."""
        return await self._pull_leaves(commitment, 0, self.scheme.layout.num_leaves, deadline_block)

    async def _reduce_part(
        self, window: Window, roster: Roster, part: int, start: int, stop: int
    ) -> ReducedPart | None:
        pulls = [self._pull_part(window, c, start, stop, window.scatter_end) for c in roster.mean]
        members = await asyncio.gather(*pulls)
        if all(read is None for read in members):
            return None  # not even its own: it has started again since it committed
        reduced = await asyncio.to_thread(reduce, self.scheme, roster, part, members)
        self.swarm.store.add(reduced.root, reduced.leaves, tree=reduced.tree, keep_until_round=window.round + 1)
        body = part_body(part, reduced.root, roster, reduced.included)
        await self.swarm.publish("part", window.round, body, subkey=str(part))
        return reduced

    async def _pull_leaves(self, commitment: Commitment, start: int, stop: int, deadline: float) -> Sequence[bytes]:
        """Leaves `[start, stop)` of a contribution; this peer's own are at hand."""
        if (commitment.hotkey, commitment.root) == (self.own, self._mine[0]):
            return self._mine[1][start:stop]
        return await self.swarm.fetch_leaves(
            [commitment.hotkey],
            commitment.root,
            self.scheme.layout.num_leaves,
            start,
            stop,
            lambda leaf: self.scheme.codec.max_encoded_size(self._elements(leaf)),
            timeout=self.clock.seconds_until(deadline),
            owner=commitment.hotkey,
        )

    async def _pull_part(
        self, window: Window, commitment: Commitment, start: int, stop: int, deadline: float
    ) -> Read | None:
        """One contributor's leaves `[start, stop)`, checked, or None when late or refused."""
        try:
            leaves = await self._pull_leaves(commitment, start, stop, deadline)
            await asyncio.to_thread(check_contribution_part, self.scheme, commitment, leaves, start, stop)
        except (BadRecord, FetchError, CodecError) as error:
            self.refusals.drop(window, commitment.hotkey, error)
            return None
        return encoded(self.scheme, leaves, start)

    async def _gather_part(
        self, window: Window, update: Update, words: Words, part: int, start: int, stop: int
    ) -> bool:
        """Fill the reduced part `[start, stop)` in, tried again until the gather deadline; False: it never came."""
        reducers = update.roster.reducers(part, self.redundancy)
        # Reducers that agree are followed at once; half-way, whoever has spoken by then.
        half_way = (window.scatter_end + window.gather_end) / 2
        useless: set[bytes] = set()
        heard: list[PartResult] = []
        ranking: Sequence[PartResult] = ()
        while self.clock.block() < window.gather_end:
            heard_here = words.heard.get(part, {})
            all_spoke = len(heard_here) == len(reducers)
            if all_spoke or self.clock.block() >= half_way:
                spoken = [heard_here[h] for h in reducers if h in heard_here]
                candidates = [word for word in spoken if word.root not in useless]
                if candidates != heard:
                    heard, ranking = candidates, await self._ranked(window, update, candidates, start, stop)
                for result in ranking:
                    update.results[part] = result
                    try:
                        await self._follow(window, update, result, start, stop)
                        return True
                    except FetchError as error:
                        self.refusals.drop(window, result.reducer, error)
                    except (CodecError, BadRecord) as error:
                        # What its reducer signed for cannot be used, and asking again would bring the same bytes.
                        self.refusals.drop(window, result.reducer, error)
                        useless.add(result.root)
                if all_spoke and not candidates:
                    return False
            await words.news()
        return False

    async def _follow(self, window: Window, update: Update, result: PartResult, start: int, stop: int) -> None:
        """Fill the part that a reducer signed for in; from now on it is on offer here as well.

        Raises FetchError, CodecError or BadRecord.
        """
        leaves = self.swarm.store.get(result.root)
        if leaves is None:
            leaves = await self._pull_reduced(window, result, start, stop)

        def fill() -> None:
            values = open_reduced_part(self.scheme, update.roster, result, leaves, start, stop)
            update.delta[slice(*self.scheme.layout.span(start, stop))] = values

        await asyncio.to_thread(fill)
        self.swarm.store.add(result.root, leaves, keep_until_round=window.round + 1)

    async def _ranked(
        self, window: Window, update: Update, candidates: Sequence[PartResult], start: int, stop: int
    ) -> Sequence[PartResult]:
        """The words on one part in the order to be followed; if they differ, the part is made again to see who lies."""
        if len({c.root for c in candidates}) <= 1:
            return candidates
        wanted = frozenset[str]().union(*(c.included for c in candidates))
        members = [c for c in update.roster.mean if c.hotkey in wanted]
        pulls = [self._pull_part(window, c, start, stop, window.gather_end) for c in members]
        parts = dict(zip((c.hotkey for c in members), await asyncio.gather(*pulls), strict=True))
        verdicts = await asyncio.to_thread(
            lambda: {c.reducer: made_of(self.scheme, update.roster, c, parts) for c in candidates}
        )
        for candidate in candidates:
            if verdicts[candidate.reducer] is False and candidate.reducer not in update.faults:
                update.faults.add(candidate.reducer)
                lie = BadRecord("reduced part is not what its contributions give")
                self.refusals.drop(window, candidate.reducer, lie)
        return ranked(candidates, verdicts)

    async def _pull_reduced(self, window: Window, result: PartResult, start: int, stop: int) -> list[bytes]:
        others = [hotkey for hotkey in self.swarm.peers if hotkey != result.reducer]
        return await self.swarm.fetch_leaves(
            [result.reducer, *others],
            result.root,
            stop - start,
            0,
            stop - start,
            lambda leaf: self.scheme.reduced.max_encoded_size(self._elements(start + leaf)),
            timeout=self.clock.seconds_until(window.gather_end),
        )

    def _elements(self, leaf: int) -> int:
        first, last = self.scheme.layout.leaves[leaf]
        return last - first

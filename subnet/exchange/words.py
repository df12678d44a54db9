"""The reducers' signed words on the parts of one round, as they come.

Every reducer is asked itself and answers as soon as it has one: that is sooner than the DHT hands it on, which is
looked at beside it for those that cannot be asked.
"""

from __future__ import annotations

import asyncio

from subnet.chain.clock import BlockClock
from subnet.exchange.butterfly import PartResult, open_part
from subnet.exchange.refusals import Refusals
from subnet.exchange.roster import Roster
from subnet.exchange.round import POLL_SECONDS
from subnet.exchange.window import Window
from subnet.swarm.blobs import FetchError
from subnet.swarm.network import Swarm
from subnet.swarm.records import BadRecord, Record
from subnet.waiting import end, timeout

LOOK_SECONDS = 1.0
"""Between two looks into the DHT."""


class Words:
    """`heard`: part -> reducer -> its word, each checked against the roster."""

    def __init__(
        self, swarm: Swarm, clock: BlockClock, refusals: Refusals, window: Window, roster: Roster, redundancy: int
    ) -> None:
        self.swarm = swarm
        self.clock = clock
        self.refusals = refusals
        self.window = window
        self.roster = roster
        self.redundancy = redundancy
        self.heard: dict[int, dict[str, PartResult]] = {}
        self._refused: set[bytes] = set()
        self._news = asyncio.Event()

    async def listen(self, parts: int) -> None:
        """Ask and look until every reducer of these many parts has spoken."""
        wanted = [(part, h) for part in range(parts) for h in self.roster.reducers(part, self.redundancy)]
        asking = [asyncio.create_task(self._ask(part, hotkey)) for part, hotkey in wanted]
        try:
            while sum(map(len, self.heard.values())) < len(wanted):
                for record in await self.swarm.records("part", self.window.round):
                    self._take(record)
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            await end(asking)

    async def news(self) -> None:
        """Return when another word has come, or after POLL_SECONDS."""
        try:
            async with timeout(POLL_SECONDS):
                await self._news.wait()
        except asyncio.TimeoutError:
            return

    async def _ask(self, part: int, hotkey: str) -> None:
        seconds = self.clock.seconds_until(self.window.gather_end)
        try:
            self._take(await self.swarm.word(hotkey, "part", self.window.round, str(part), seconds))
        except FetchError:
            return  # it may still be in the DHT
        except BadRecord as error:
            self.refusals.drop(self.window, hotkey, error)

    def _take(self, record: Record) -> None:
        if record.signature in self._refused:
            return
        try:
            result = open_part(record, self.roster, self.redundancy)
        except BadRecord as error:
            self._refused.add(record.signature)
            self.refusals.drop(self.window, record.hotkey, error)
            return
        if self.heard.setdefault(result.part, {}).setdefault(result.reducer, result) is result:
            self._news.set()
            self._news = asyncio.Event()

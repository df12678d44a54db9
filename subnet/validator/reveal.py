"""This validator's weights where they are committed by hash: what was committed is on disk first, and revealed in time.

A commit can be revealed in one epoch only, and by nobody without its salt; so the salt is saved before the commit is
sent, and whoever restarts in between goes on. Epochs are read from the chain, never reckoned.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from subnet.chain.client import WeightsOutcome
from subnet.chain.errors import ChainRefused, ChainUnreachable
from subnet.chain.reveal import Commits, Sealed

KEPT = 16
"""Commits on disk; the chain allows ten of a hotkey."""
LANDING_BLOCKS = 150
"""Within which a transaction is in a block or never will be."""
LOOKS_PER_EPOCH = 4
RETRY_BLOCKS = 4.0
_VERSION = 1

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Entry:
    """A commit on disk, and the block by which it was made."""

    sealed: Sealed
    block: int


class Revealer:
    """`block` tells the time; `wait_for` is False if this neuron stops before a block."""

    def __init__(
        self,
        path: Path,
        commits: Commits,
        block: Callable[[], float],
        wait_for: Callable[[float], Awaitable[bool]],
    ) -> None:
        self._path = path
        self._commits = commits
        self._block = block
        self._wait_for = wait_for
        self._entries = load(path)
        self._added = asyncio.Event()

    async def commit(self, weights: dict[int, float], version_key: int) -> WeightsOutcome:
        """Commit weights by uid; `run` reveals them. Raises ChainUnreachable: they may be committed or not."""
        try:
            sealed = await self._commits.seal(weights, version_key)
        except ChainRefused as error:
            return WeightsOutcome(False, refused=str(error))
        entry = Entry(sealed, int(self._block()))
        try:
            save(self._path, [*self._entries, entry][-KEPT:])
        except OSError as error:
            why = f"their salt cannot be saved in {self._path} ({error.strerror or error}); make room there"
            return WeightsOutcome(False, refused=why)
        self._entries = [*self._entries, entry][-KEPT:]
        outcome = await self._commits.commit(sealed)
        if outcome.ok:
            self._added.set()
        else:
            self._forget([entry])
        return outcome

    async def run(self) -> None:
        """Reveal what was committed, each in its epoch; returns when the neuron is stopping."""
        while True:
            self._added.clear()
            if not self._entries:
                await self._added.wait()
            try:
                look = await self._look()
            except ChainUnreachable as error:
                log.debug("cannot see whether weights are to be revealed: %s", error)
                look = self._block() + RETRY_BLOCKS
            if not await self._wait_for(look):
                return

    async def _look(self) -> float:
        """Reveals what is due, forgets what is over; the block at which to look again. Raises ChainUnreachable."""
        now = await self._commits.standing()
        digests = {self._commits.digest(entry.sealed): entry for entry in self._entries}
        over = [e for d, e in digests.items() if d not in now.due and now.block - e.block > LANDING_BLOCKS]
        for digest, entry in digests.items():
            if now.due.get(digest, now.epoch) < now.epoch:
                log.warning("weights committed at block %d were not revealed in their epoch", entry.block)
                over.append(entry)
        due = [entry for digest, entry in digests.items() if now.due.get(digest) == now.epoch]
        if due:
            # A reveal drops every commit before it, and those of the same epoch would be replaced at once.
            await self._reveal(due[-1])
        self._forget([*over, *due])
        # An owner may have an epoch run before its time.
        step = min(now.next_epoch_block - now.block, now.tempo / LOOKS_PER_EPOCH)
        return now.block + max(1.0, step)

    async def _reveal(self, entry: Entry) -> None:
        try:
            await self._commits.reveal(entry.sealed)
        except ChainRefused as error:
            log.warning("weights committed at block %d: %s", entry.block, error)
        else:
            log.info("weights committed at block %d are revealed (%d uids)", entry.block, len(entry.sealed.uids))

    def _forget(self, over: list[Entry]) -> None:
        if not over:
            return
        self._entries = [entry for entry in self._entries if entry not in over]
        try:
            save(self._path, self._entries)
        except OSError as error:
            log.warning("%s cannot be saved: %s", self._path, error)


def load(path: Path) -> list[Entry]:
    """What was saved, oldest first; of a damaged file, nothing: those weights cannot be revealed."""
    if not path.exists():
        return []
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["version"] != _VERSION:
            raise ValueError("of another version")
        return [_entry(row) for row in document["commits"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.warning("the commits in %s are of no use (%s); their weights cannot be revealed", path, error)
        return []


def save(path: Path, entries: list[Entry]) -> None:
    """Write them beside `path` and rename it over. Raises OSError (disk full) with the old file intact."""
    fresh = path.with_suffix(".new")
    with fresh.open("w", encoding="utf-8") as file:
        rows = [{"block": entry.block, **asdict(entry.sealed)} for entry in entries]
        json.dump({"version": _VERSION, "commits": rows}, file)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


def _entry(row: dict[str, Any]) -> Entry:
    uids, values, salt = (tuple(int(number) for number in row[name]) for name in ("uids", "values", "salt"))
    return Entry(Sealed(uids, values, salt, int(row["version_key"])), int(row["block"]))

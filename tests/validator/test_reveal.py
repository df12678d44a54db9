"""Commits by hash: on disk before they are sent, revealed in their one epoch, across restarts and failures."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import bittensor as bt
import pytest

from subnet.chain import wallets
from subnet.chain.client import Chain, WeightsOutcome
from subnet.chain.errors import ChainRefused, ChainUnreachable
from subnet.chain.reveal import Commits, Sealed, Standing
from subnet.validator.reveal import LANDING_BLOCKS, Entry, Revealer, load, save
from tests.conftest import dev

TEMPO = 100


class Books:
    """What the chain would hold: commits by hash with their epochs, and what was revealed; epochs begin at hundreds."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.now = 10.0
        self.committed: dict[bytes, int] = {}
        self.revealed: list[tuple[float, tuple[int, ...]]] = []
        self.looks: list[float] = []
        self.fails: list[Exception] = []
        """What the next calls raise, first to last."""
        self.stops_at = float("inf")

    def revealer(self) -> Revealer:
        return Revealer(self.path, self, lambda: self.now, self.wait_for)  # type: ignore[arg-type]

    async def wait_for(self, block: float) -> bool:
        assert block > self.now, "it must not look twice at the same block"
        self.now = min(block, self.stops_at)
        return block < self.stops_at

    def _fail(self) -> None:
        if self.fails:
            raise self.fails.pop(0)

    def digest(self, sealed: Sealed) -> bytes:
        return sealed.digest(2, dev("alice").hotkey_ss58)

    async def seal(self, weights: dict[int, float], version_key: int) -> Sealed:
        self._fail()
        return Sealed(tuple(weights), tuple(int(v) for v in weights.values()), (int(self.now),), version_key)

    async def commit(self, sealed: Sealed) -> WeightsOutcome:
        assert sealed in [entry.sealed for entry in load(self.path)], "the salt must be on disk before this"
        self._fail()
        self.committed[self.digest(sealed)] = int(self.now) // TEMPO
        return WeightsOutcome(True, committed=True)

    async def reveal(self, sealed: Sealed) -> None:
        self._fail()
        assert self.committed[self.digest(sealed)] + 1 == int(self.now) // TEMPO
        gone = list(self.committed)[: list(self.committed).index(self.digest(sealed)) + 1]
        for digest in gone:
            del self.committed[digest]
        self.revealed.append((self.now, sealed.uids))

    async def standing(self) -> Standing:
        self.looks.append(self.now)
        self._fail()
        epoch = int(self.now) // TEMPO
        due = {digest: made + 1 for digest, made in self.committed.items()}
        return Standing(int(self.now), epoch, TEMPO, (epoch + 1) * TEMPO, due)

    def run(self, revealer: Revealer, until: float) -> None:
        """Lets it reveal until a block; it must then stop by itself, or be waiting for the next commit."""
        self.stops_at = until

        async def bounded() -> None:
            task = asyncio.ensure_future(revealer.run())
            for _ in range(1000):
                if task.done():
                    return task.result()
                await asyncio.sleep(0)
            task.cancel()

        asyncio.run(bounded())


@pytest.fixture
def books(tmp_path: Path) -> Books:
    return Books(tmp_path / "commits.json")


def test_a_commit_is_revealed_as_soon_as_its_epoch_begins_and_then_forgotten(books: Books) -> None:
    revealer = books.revealer()
    assert asyncio.run(revealer.commit({3: 1.0}, 7)).committed
    books.run(revealer, 1000)
    assert books.revealed == [(100.0, (3,))] and load(books.path) == [] and len(books.looks) <= 6


def test_a_restart_in_between_loses_nothing(books: Books) -> None:
    asyncio.run(books.revealer().commit({3: 1.0}, 7))
    books.now = 130.0
    books.run(books.revealer(), 1000)
    assert books.revealed == [(130.0, (3,))]


def test_only_the_last_of_an_epochs_commits_is_revealed(books: Books) -> None:
    revealer = books.revealer()
    for uid in (3, 4):
        books.now += 1
        asyncio.run(revealer.commit({uid: 1.0}, 0))
    books.run(revealer, 1000)
    assert books.revealed == [(100.0, (4,))] and books.committed == {}


def test_what_is_late_is_said_and_forgotten(books: Books, caplog: pytest.LogCaptureFixture) -> None:
    asyncio.run(books.revealer().commit({3: 1.0}, 0))
    books.now = 200.0
    books.run(books.revealer(), 1000)
    assert books.revealed == [] and load(books.path) == []
    assert "weights committed at block 10 were not revealed in their epoch" in caplog.text


def test_a_chain_out_of_reach_is_asked_again(books: Books) -> None:
    revealer = books.revealer()
    asyncio.run(revealer.commit({3: 1.0}, 0))
    books.now = 100.0
    books.fails = [ChainUnreachable("gone")] * 3
    books.run(revealer, 1000)
    assert books.revealed == [(112.0, (3,))]


def test_a_commit_of_unknown_fate_is_kept_as_long_as_it_may_land(books: Books) -> None:
    revealer = books.revealer()
    asyncio.run(revealer.commit({3: 1.0}, 0))
    (entry,) = load(books.path)
    books.committed.clear()
    books.run(revealer, 100)
    assert load(books.path) == [entry]
    books.run(revealer, 1000)
    assert load(books.path) == [] and books.revealed == [] and books.now >= entry.block + LANDING_BLOCKS


def test_what_the_chain_refuses_is_said(books: Books, caplog: pytest.LogCaptureFixture) -> None:
    revealer = books.revealer()
    books.fails = [ChainRefused("too few")]
    assert asyncio.run(revealer.commit({3: 1.0}, 0)).refused == "too few"
    asyncio.run(revealer.commit({3: 1.0}, 0))
    books.now = 100.0

    async def refused(_: Sealed) -> None:
        raise ChainRefused("no permit")

    books.reveal = refused  # type: ignore[method-assign]
    books.run(revealer, 1000)
    assert load(books.path) == [] and "weights committed at block 10: no permit" in caplog.text


def test_without_room_for_the_salt_nothing_is_committed(books: Books) -> None:
    books.path = books.path / "missing" / "commits.json"
    outcome = asyncio.run(books.revealer().commit({3: 1.0}, 0))
    assert "their salt cannot be saved" in outcome.refused and books.committed == {}


@pytest.mark.parametrize("text", ["", "{}", '{"version": 2, "commits": []}', '{"version": 1, "commits": [{}]}', "[1]"])
def test_a_damaged_file_costs_its_commits_only(books: Books, text: str, caplog: pytest.LogCaptureFixture) -> None:
    books.path.write_text(text)
    assert load(books.path) == [] and "are of no use" in caplog.text


def test_what_is_saved_is_loaded(books: Books) -> None:
    entries = [Entry(Sealed((1, 2), (3, 65535), (0, 9), 2**40), 17), Entry(Sealed((), (), (), 0), 18)]
    save(books.path, entries)
    assert load(books.path) == entries and json.loads(books.path.read_text())["version"] == 1


def test_on_a_running_chain_hidden_weights_appear_after_the_reveal_period_despite_a_restart(
    start_localnet: Callable[..., Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = start_localnet(block_time=0.05, tempo=40, weights_rate_limit=5)
    owner, validator = dev("hidden-o"), dev("hidden-v")
    path = tmp_path / "commits.json"

    async def on_chain(use: Callable[[Chain], Awaitable[None]]) -> None:
        chain = await Chain.connect(node.endpoint)
        try:
            await asyncio.wait_for(use(chain), 60)
        finally:
            await chain.close()

    async def weights(chain: Chain, netuid: int) -> Any:
        return await chain.query(("SubtensorModule", "Weights"), [netuid, 1])

    async def epoch(chain: Chain, netuid: int) -> int:
        return int(await chain.query(("SubtensorModule", "SubnetEpochIndex"), [netuid]))

    async def first(chain: Chain) -> None:
        await wallets.fund(chain, wallets.alice(), owner.coldkey_ss58, 2000.0)
        await wallets.fund(chain, wallets.alice(), validator.coldkey_ss58, 1000.0)
        netuid = await wallets.register_subnet(chain, owner)
        await wallets.start_call(chain, owner, netuid)
        await wallets.burned_register(chain, validator, netuid)
        await wallets.add_stake(chain, validator, netuid, 500.0)
        clock, commits = await chain.clock(), Commits(chain, netuid, validator.signer)
        assert not await commits.needed()
        setting = bt.calls.AdminUtils.sudo_set_commit_reveal_weights_enabled(netuid=netuid, enabled=True)
        await chain.submit(setting, owner, "coldkey")
        assert await commits.needed()
        began = await epoch(chain, netuid)
        while await epoch(chain, netuid) < began + 1:
            await clock.wait_until(clock.block() + 1)
        revealer = Revealer(path, commits, clock.block, clock.wait_until)  # type: ignore[arg-type]  # it does not run
        assert str(await revealer.commit({0: 1.0, 1: 0.5}, 0)) == "set, hidden until they are revealed"
        too_soon = await revealer.commit({0: 1.0}, 0)
        assert 0 < too_soon.wait_blocks <= 5 and len(load(path)) == 1
        assert await weights(chain, netuid) == []

    async def second(chain: Chain) -> None:
        netuid = 2
        clock, commits = await chain.clock(), Commits(chain, netuid, validator.signer)
        (due,) = (await commits.standing()).due.values()

        async def wait_for(block: float) -> bool:
            await clock.wait_until(block)
            return True

        revealing = asyncio.ensure_future(Revealer(path, commits, clock.block, wait_for).run())
        while not await weights(chain, netuid):
            assert not revealing.done() and await epoch(chain, netuid) <= due
            await clock.wait_until(clock.block() + 1)
        assert await epoch(chain, netuid) == due
        assert await weights(chain, netuid) == [(0, 65535), (1, 32768)]
        while load(path):
            await clock.wait_until(clock.block() + 1)
        revealing.cancel()

    with caplog.at_level(logging.INFO):
        asyncio.run(on_chain(first))
        asyncio.run(on_chain(second))
    assert "are revealed (2 uids)" in caplog.text

"""The whole edge against the embedded chain: set up a subnet, read it, commit, set weights, earn, and lose the node."""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from subnet.chain import emissions as earnings
from subnet.chain import wallets
from subnet.chain.client import Chain, Head, WeightsOutcome
from subnet.chain.clock import BlockClock
from subnet.chain.errors import ChainRefused, ChainUnreachable, NoSuchSubnet
from subnet.chain.keys import hotkey_from_uri
from subnet.chain.preflight import MINER, VALIDATOR, preflight
from subnet.errors import UserError

T = TypeVar("T")

LIMIT = 20
EPOCH = 20


@dataclass
class Subnet:
    netuid: int
    owner: wallets.DevWallet
    validator: wallets.DevWallet
    miner: wallets.DevWallet


@pytest.fixture(scope="module")
def node(start_localnet: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A chain of this module's own, since a test kills it; it keeps its state."""
    state = tmp_path_factory.mktemp("chain")
    return start_localnet(state=state, block_time=0.1, tempo=EPOCH, weights_rate_limit=LIMIT)


def on_chain(node: Any, use: Callable[[Chain], Awaitable[T]]) -> T:
    async def run() -> T:
        chain = await Chain.connect(node.endpoint)
        try:
            return await asyncio.wait_for(use(chain), 60)
        finally:
            await chain.close()

    return asyncio.run(run())


@pytest.fixture(scope="module")
def subnet(node: Any, tmp_path_factory: pytest.TempPathFactory) -> Subnet:
    """The newcomer's loop, with what it must refuse on the way."""
    folder = tmp_path_factory.mktemp("wallets")
    owner, validator, miner = (wallets.create_wallet(folder, name) for name in ("owner", "validator", "miner"))

    async def set_up(chain: Chain) -> int:
        for wallet, tao in ((owner, 2000.0), (validator, 1000.0), (miner, 10.0)):
            await wallets.fund(chain, wallets.alice(), wallet.coldkey_ss58, tao)
        assert await chain.balance(validator.coldkey_ss58) == 1000.0
        netuid = await wallets.register_subnet(chain, owner)
        with pytest.raises(UserError, match=f"subnet {netuid} .* has not been started.*btcli tx start-call"):
            await preflight(chain, netuid, owner.hotkey_ss58, MINER)
        await wallets.start_call(chain, owner, netuid)
        assert await wallets.burned_register(chain, validator, netuid) == 1
        assert await wallets.burned_register(chain, miner, netuid) == 2
        with pytest.raises(UserError, match="has no stake"):
            await preflight(chain, netuid, validator.hotkey_ss58, VALIDATOR)
        await wallets.add_stake(chain, validator, netuid, 500.0)
        await wallets.sudo_set(
            chain, wallets.alice(), "sudo_set_commit_reveal_weights_enabled", netuid=netuid, enabled=False
        )
        return netuid

    return Subnet(on_chain(node, set_up), owner, validator, miner)


def test_what_became_of_weights_is_a_phrase() -> None:
    said = {
        "set": WeightsOutcome(True),
        "set, hidden until they are revealed": WeightsOutcome(True, committed=True),
        "not set: it is too early; trying again in 7 blocks": WeightsOutcome(False, wait_blocks=7),
        "not set: no permit": WeightsOutcome(False, refused="no permit"),
    }
    assert {str(outcome): outcome for outcome in said.values()} == said


def test_wallets_are_reused(tmp_path: Path) -> None:
    first = wallets.create_wallet(tmp_path, "w", "h")
    again = wallets.create_wallet(tmp_path, "w", "h")
    other = wallets.create_wallet(tmp_path, "w", "h2")
    assert (again.coldkey_ss58, again.hotkey_ss58) == (first.coldkey_ss58, first.hotkey_ss58)
    assert other.coldkey_ss58 == first.coldkey_ss58 and other.hotkey_ss58 != first.hotkey_ss58


def test_blocks(node: Any) -> None:
    async def use(chain: Chain) -> None:
        assert await chain.block_hash(10**6) is None
        head = await chain.head()
        assert await chain.block_hash(head.number) == head.hash
        seen = []
        async for new in chain.heads():
            seen.append(new)
            if len(seen) == 3:
                break
        assert [new.number - seen[0].number for new in seen] == [0, 1, 2]
        fresh = await Chain.connect(node.endpoint)
        assert [await fresh.block_hash(new.number) for new in seen] == [new.hash for new in seen]
        await fresh.close()
        assert 0.05 <= await chain.block_time() <= 0.2

    on_chain(node, use)


def test_clock_is_known_within_two_seconds_and_follows(node: Any) -> None:
    async def use(chain: Chain) -> None:
        started = time.monotonic()
        clock = await chain.clock()
        assert time.monotonic() - started < 2.0 and await chain.clock() is clock
        await clock.wait_until(clock.block() + 5)
        number = (await chain.head()).number
        assert abs(clock.block() - number) < 3
        target = int(clock.block()) + 2
        found = await clock.hash_of(target)
        assert found == await chain.block_hash(target)

    on_chain(node, use)


def test_metagraph(node: Any, subnet: Subnet) -> None:
    async def use(chain: Chain) -> None:
        await chain.commit(subnet.netuid, subnet.miner.signer, b"\x00\xff any bytes")
        graph = await chain.metagraph(subnet.netuid)
        hotkeys = [w.hotkey_ss58 for w in (subnet.owner, subnet.validator, subnet.miner)]
        assert [row.hotkey for row in graph.rows] == hotkeys and graph.owner_hotkey == hotkeys[0]
        assert graph.rows[1].stake > 100 and graph.tempo == EPOCH
        assert [row.commitment for row in graph.rows] == [None, None, b"\x00\xff any bytes"]
        assert await chain.commitments(subnet.netuid) == {hotkeys[2]: b"\x00\xff any bytes"}
        assert await chain.metagraph(subnet.netuid, block=graph.block) is graph
        earlier = await chain.metagraph(subnet.netuid, block=graph.block - 1)
        assert earlier.block == graph.block - 1 and earlier.rows[2].commitment is None
        hyper = await chain.hyperparameters(subnet.netuid)
        assert (hyper.tempo, hyper.weights_rate_limit, hyper.commit_reveal) == (EPOCH, LIMIT, False)
        for missing in (chain.metagraph(77), chain.hyperparameters(77)):
            with pytest.raises(NoSuchSubnet, match="subnet 77 does not exist on ws://"):
                await missing

    on_chain(node, use)


def test_refusals_are_one_clear_line(node: Any, subnet: Subnet) -> None:
    async def use(chain: Chain) -> None:
        with pytest.raises(ChainRefused, match="the chain refused transfer: "):
            await wallets.fund(chain, subnet.miner, subnet.owner.coldkey_ss58, 1e6)
        with pytest.raises(ChainRefused, match="the chain refused set_commitment: "):
            await chain.commit(subnet.netuid, hotkey_from_uri("//Eve"), b"x")
        with pytest.raises(ValueError, match="no call 'sudo_set_nothing'"):
            await wallets.sudo_set(chain, wallets.alice(), "sudo_set_nothing")
        with pytest.raises(ChainRefused, match="the chain refused sudo"):
            await wallets.sudo_set(chain, subnet.miner, "sudo_set_tempo", netuid=subnet.netuid, tempo=5)

    on_chain(node, use)


def test_weights_and_earnings(node: Any, subnet: Subnet, capsys: pytest.CaptureFixture[str]) -> None:
    netuid, validator = subnet.netuid, subnet.validator.signer

    async def next_epoch(chain: Chain) -> None:
        clock = await chain.clock()
        last = (await chain.metagraph(netuid)).last_epoch
        while (await chain.metagraph(netuid)).last_epoch == last:
            await clock.wait_until(clock.block() + 2)

    async def use(chain: Chain) -> None:
        await next_epoch(chain)
        await preflight(chain, netuid, validator.ss58, VALIDATOR)
        assert (await chain.metagraph(netuid)).by_hotkey[validator.ss58].permit
        outcome = await chain.set_weights(netuid, validator, {2: 0.75, 0: 0.25})
        while outcome.wait_blocks:
            assert outcome.wait_blocks <= LIMIT
            clock = await chain.clock()
            await clock.wait_until(clock.block() + outcome.wait_blocks)
            outcome = await chain.set_weights(netuid, validator, {2: 0.75, 0: 0.25})
        assert outcome.ok and not outcome.committed and not outcome.refused
        too_soon = await chain.set_weights(netuid, validator, {2: 1.0})
        assert not too_soon.ok and 0 < too_soon.wait_blocks <= LIMIT and not too_soon.refused
        stranger = await chain.set_weights(netuid, hotkey_from_uri("//Eve"), {2: 1.0})
        assert "not registered" in stranger.refused and not stranger.wait_blocks

        await next_epoch(chain)
        await next_epoch(chain)
        owner, paid, miner = (await chain.metagraph(netuid)).rows
        assert miner.incentive == pytest.approx(0.75, abs=1e-3) and owner.incentive == pytest.approx(0.25, abs=1e-3)
        assert paid.dividends == 1.0 and paid.emission == pytest.approx(0.41 * EPOCH, rel=0.01)
        table = await earnings.emissions(chain, netuid, epochs=2)
        assert [row.role for row in table.rows] == ["validator", "miner", "owner, miner"]
        assert table.rows[1].emission == pytest.approx(0.75 * 0.41 * EPOCH, rel=0.01) and table.rows[2].emission == 0
        assert table.rows[1].earned > table.rows[1].emission and table.epochs == 2

    on_chain(node, use)
    assert earnings.main(["--netuid", str(netuid), "--subtensor.network", node.endpoint, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["netuid"] == netuid and len(printed["rows"]) == 3 and printed["rows"][0]["role"] == "validator"


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_chain_that_goes_and_comes_back_is_said_once_each(
    start_localnet: Callable[..., Any], tmp_path: Path, caplog: pytest.LogCaptureFixture, end: str
) -> None:
    node = start_localnet(state=tmp_path, block_time=0.1)

    async def use(chain: Chain) -> None:
        clock = await chain.clock()
        await clock.wait_until(clock.block() + 3)
        getattr(node, end)()
        while chain.in_reach:
            await asyncio.sleep(0.05)
        for _ in range(3):
            with pytest.raises(ChainUnreachable):
                await chain.metagraph(1)
        node.start()
        while not chain.in_reach:
            await asyncio.sleep(0.05)
        assert (await chain.metagraph(1)).netuid == 1

    logging.getLogger("bittensor.transport").setLevel(logging.NOTSET)
    with caplog.at_level(logging.INFO):
        on_chain(node, use)
        gc.collect()  # asyncio reports a task that failed unseen when it is collected
    said = [(r.levelno, r.getMessage()) for r in caplog.records]
    assert [level for level, _ in said] == [logging.WARNING, logging.INFO], said
    assert f"the chain at {node.endpoint} is out of reach" in said[0][1]
    assert f"the chain at {node.endpoint} is back, at block" in said[1][1]


def test_a_chain_that_is_gone_for_hours_is_still_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("subnet.chain.client.random.uniform", lambda low, high: 0.0)

    async def use() -> int:
        chain = Chain("ws://127.0.0.1:9")
        attempts = itertools.count()

        async def subscribe() -> AsyncIterator[Head]:
            if next(attempts) < 2000:
                raise ChainUnreachable("gone")
            yield Head(7, bytes(32))

        monkeypatch.setattr(chain, "_subscribe", subscribe)
        pauses.append(chain._longest_pause)
        for block_time in (0.25, 12.0):
            chain._clock = BlockClock(1, block_time, chain.block_hash)
            pauses.append(chain._longest_pause)
        async for head in chain.heads():
            return head.number
        return -1

    assert asyncio.run(use()) == 7
    assert pauses == [30.0, 2.0, 30.0]


@pytest.mark.slow
def test_the_node_may_vanish_and_come_back(node: Any, subnet: Subnet, caplog: pytest.LogCaptureFixture) -> None:
    async def use(chain: Chain) -> None:
        clock = await chain.clock()
        node.kill()
        gone_at = clock.block()
        await clock.wait_until(gone_at + 10)
        with pytest.raises(ChainUnreachable, match="is `sn38 localnet` running"):
            await chain.metagraph(subnet.netuid)
        with pytest.raises(ChainUnreachable):
            await chain.set_weights(subnet.netuid, subnet.validator.signer, {2: 1.0})
        with pytest.raises(ChainUnreachable):
            await clock.hash_of(int(clock.block()) + 1)
        before = clock.block()
        node.start()
        while clock.block() < before + 5 or (await chain.head()).number < gone_at + 5:
            assert clock.block() >= before
            await asyncio.sleep(0.1)
        assert (await chain.metagraph(subnet.netuid)).uid_of(subnet.miner.hotkey_ss58) == 2
        while abs(clock.block() - (await chain.head()).number) > 2:
            await asyncio.sleep(0.1)
        outcome = await chain.set_weights(subnet.netuid, subnet.validator.signer, {2: 1.0})
        assert outcome.ok or outcome.wait_blocks

    on_chain(node, use)
    assert "Traceback" not in caplog.text

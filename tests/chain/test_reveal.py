"""The hash of a commit, and when weights are committed by it rather than sealed by the SDK."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

import bittensor as bt
import pytest

from subnet.chain.client import Chain
from subnet.chain.keys import Hotkey
from subnet.chain.reveal import BEACON_SILENCE, Commits, Sealed, hears_beacon
from subnet.localnet.dispatch import Rules
from subnet.localnet.methods import Methods
from subnet.localnet.pallets.weights import hash_weights
from subnet.localnet.rpc import RpcServer
from subnet.localnet.store import Store
from tests.conftest import dev
from tests.localnet.conftest import Net, key

BLOCK_SECONDS = 0.05


@pytest.mark.parametrize("count", [0, 1, 63, 64, 256])
def test_the_hash_is_the_chains(count: int) -> None:
    uids, values, salt = tuple(range(count)), tuple(range(65535, 65535 - count, -1)), (0, 256, 65535)
    who = dev("alice").hotkey_ss58
    digest = Sealed(uids, values, salt, 2**63).digest(513, who)
    assert "0x" + digest.hex() == hash_weights(who, 513, list(uids), list(values), list(salt), 2**63)


def test_a_chain_hears_the_beacon_while_its_newest_round_is_recent() -> None:
    round_ = 10_000_000
    published = bt.timelock.reveal_time(round_).timestamp()
    assert hears_beacon(round_, published) and hears_beacon(round_, published + BEACON_SILENCE - 1)
    assert not hears_beacon(round_, published + BEACON_SILENCE) and not hears_beacon(0, published)


async def produce(net: Net) -> None:
    while True:
        net.clock = time.time_ns() // 1_000_000
        net.produce()
        await asyncio.sleep(BLOCK_SECONDS)


def test_where_the_chain_hears_the_beacon_the_sdk_seals() -> None:
    """On a chain in this process, so that a round of today can be stored, which nobody can sign here."""
    net = Net(Store(None), Rules(tempo=10_000, weights_rate_limit=1))
    netuid = net.subnet()
    net.register(netuid, "a")
    net.stake("a", netuid, 20)

    async def act(chain: Chain) -> None:
        commits = Commits(chain, netuid, Hotkey(key("a_hot")))
        assert not await commits.needed()
        ledger, who = net.chain.ledger, net.address("a_hot")
        ledger.put("SubtensorModule", "CommitRevealWeightsEnabled", (netuid,), True)
        assert await commits.needed()
        assert (await commits.commit(await commits.seal({0: 1.0}, 0))).committed
        assert list((await commits.standing()).due.values()) == [net.get("SubnetEpochIndex", netuid) + 1]
        ledger.put("Drand", "LastStoredRound", (), bt.timelock.current_round())
        assert not await commits.needed()
        clock = await chain.clock()
        await clock.wait_until(clock.block() + 2)
        assert (await chain.set_weights(netuid, Hotkey(key("a_hot")), {0: 1.0})).committed
        sealed = dict(ledger.pallet("SubtensorModule").items("TimelockedWeightCommits", netuid))
        assert [commit[0] for listed in sealed.values() for commit in listed] == [who]

    async def main() -> None:
        server = RpcServer(Methods(net.chain, "test").table())
        port = await server.start("127.0.0.1", 0)
        producing = asyncio.create_task(produce(net))
        chain = await Chain.connect(f"ws://127.0.0.1:{port}")
        try:
            await asyncio.wait_for(act(chain), 60)
        finally:
            await chain.close()
            producing.cancel()
            with suppress(asyncio.CancelledError):
                await producing
            await server.stop()

    asyncio.run(main())

"""Calls to a node that is not there, hangs or refuses, over real sockets; and block hashes."""

from __future__ import annotations

import asyncio
import socket

import bittensor as bt
import pytest

from subnet.chain import rpc
from subnet.chain.client import Chain
from subnet.chain.errors import BlockMissing, ChainRefused, ChainUnreachable
from subnet.errors import UserError


def test_nobody_listens() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"ws://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(ChainUnreachable, match=rf"cannot reach {url}: is `sn38 localnet` running\?"):
        asyncio.run(Chain.connect(url))


def test_somebody_listens_and_says_nothing() -> None:
    async def connect() -> None:
        async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        async with await asyncio.start_server(mute, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            await Chain.connect(f"ws://127.0.0.1:{port}", timeout=0.2)

    with pytest.raises(ChainUnreachable, match="no answer in 0 s"):
        asyncio.run(connect())


def test_unknown_network() -> None:
    with pytest.raises(UserError, match=r"--subtensor.network: there is no network 'finny'; give finney, "):
        asyncio.run(Chain.connect("finny"))


def test_remote_endpoints_get_another_remedy() -> None:
    assert "give another --subtensor.network" in rpc.unreachable("wss://example.org:443", "timed out")


async def failing(error: Exception) -> bt.ExtrinsicResult:
    raise error


def test_failures_become_typed_errors() -> None:
    def fails(error: Exception) -> bt.ExtrinsicResult:
        return asyncio.run(rpc.write("ws://h", "add_stake", failing(error), 1.0))  # type: ignore[return-value]

    with pytest.raises(ChainRefused, match=r"the chain refused add_stake: .*; fund the coldkey") as refused:
        fails(bt.ChainError("not enough", "NotEnoughBalanceToStake"))
    assert refused.value.name == "NotEnoughBalanceToStake" and not refused.value.rate_limited
    with pytest.raises(ChainRefused) as refused:
        fails(bt.ChainError("too fast", "SettingWeightsTooFast"))
    assert refused.value.rate_limited
    with pytest.raises(ChainUnreachable, match="lost while submitting add_stake"):
        fails(bt.ChainError("Connection dropped while an extrinsic submission was in flight"))
    with pytest.raises(BlockMissing, match="discarded"):
        asyncio.run(rpc.read("ws://h", failing(bt.ChainError("State discarded for 0x00")), 1.0))


def test_header_hash() -> None:
    """Polkadot's genesis: the same header format, and a hash anybody can look up."""
    header = {
        "parentHash": "0x" + "00" * 32,
        "number": 0,
        "stateRoot": "0x29d0d972cd27cbc511e9589fcb7a4506d5eb6a9e8df205f00472e5ab354a4e17",
        "extrinsicsRoot": "0x03170a2e7597b7b7e3d84c05391d139a62b157e78786d8c082f29dcf4c111314",
        "digest": {"logs": []},
    }
    assert rpc.header_hash(header).hex() == "91b171bb158e2d3848fa23a9f1c25182fb8e20313b2c1eb49219da7a70ce90c3"

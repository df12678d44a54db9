"""The wire: JSON-RPC framing, its bounds, and the node's methods as a plain websocket client sees them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from subnet.localnet import rpc
from subnet.localnet.chain import Header
from subnet.localnet.methods import Methods
from subnet.localnet.rpc import RpcServer
from tests.localnet.conftest import Net, key

DEADLINE = 10.0


class Client:
    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self._identity = 0

    async def receive(self) -> Any:
        return json.loads(await asyncio.wait_for(self.socket.recv(), DEADLINE))

    async def send(self, message: Any) -> Any:
        await self.socket.send(message if isinstance(message, str) else json.dumps(message))
        return await self.receive()

    async def ask(self, method: str, *params: Any) -> Any:
        """The result, or the error object."""
        self._identity += 1
        reply = await self.send({"jsonrpc": "2.0", "id": self._identity, "method": method, "params": list(params)})
        assert reply["id"] == self._identity
        return reply["result"] if "result" in reply else reply["error"]


@asynccontextmanager
async def served(net: Net, **options: Any) -> AsyncIterator[tuple[Client, int]]:
    server = RpcServer(Methods(net.chain, "test").table())
    port = await server.start("127.0.0.1", 0)
    try:
        async with connect(f"ws://127.0.0.1:{port}", max_size=None, **options) as socket:
            yield Client(socket), port
    finally:
        await server.stop()


def run(net: Net, talk: Callable[[Client], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with served(net) as (client, _):
            await asyncio.wait_for(talk(client), 3 * DEADLINE)

    asyncio.run(main())


def test_framing(net: Net) -> None:
    async def talk(client: Client) -> None:
        assert (await client.send("not json"))["error"]["code"] == rpc.PARSE_ERROR
        assert (await client.send("[" * 100_000))["error"]["code"] == rpc.PARSE_ERROR
        assert (await client.send([]))["error"]["code"] == rpc.INVALID_REQUEST
        assert (await client.send(["x"]))[0]["error"]["code"] == rpc.INVALID_REQUEST
        assert (await client.ask("no_such_method"))["code"] == rpc.METHOD_NOT_FOUND
        named = {"id": 1, "method": "system_chain", "params": {"a": 1}}
        assert (await client.send(named))["error"]["code"] == rpc.INVALID_PARAMS
        request = {"jsonrpc": "2.0", "method": "system_chain", "params": []}
        replies = await client.send([{**request, "id": 1}, request, {**request, "id": "two"}])
        assert [reply["id"] for reply in replies] == [1, "two"]
        too_many = [{**request, "id": number} for number in range(rpc.MAX_BATCH + 1)]
        assert (await client.send(too_many))["error"]["code"] == rpc.INVALID_REQUEST

    run(net, talk)


def test_a_fault_in_a_method_is_the_callers_answer_only(net: Net) -> None:
    def fault(*_: Any) -> None:
        raise ZeroDivisionError

    async def main() -> None:
        server = RpcServer({"faulty": fault, "fine": lambda *_: 1})
        port = await server.start("127.0.0.1", 0)
        async with connect(f"ws://127.0.0.1:{port}") as socket:
            client = Client(socket)
            assert (await client.ask("faulty"))["code"] == rpc.INTERNAL_ERROR
            assert await client.ask("fine") == 1
        await server.stop()

    asyncio.run(main())


def test_blocks_by_number_and_hash(net: Net) -> None:
    net.produce(3)
    genesis, head = "0x" + net.chain.genesis.hex(), "0x" + net.chain.head.hash.hex()

    async def talk(client: Client) -> None:
        assert await client.ask("chain_getBlockHash", 0) == await client.ask("chain_getBlockHash", "0x0") == genesis
        assert await client.ask("chain_getBlockHash", [0, 3, 4]) == [genesis, head, None]
        assert await client.ask("chain_getHead") == await client.ask("chain_getFinalizedHead") == head
        assert (await client.ask("chain_getBlockHash", "x"))["code"] == rpc.INVALID_PARAMS
        assert (await client.ask("chain_getHeader"))["number"] == "0x3"
        assert await client.ask("chain_getHeader", "0x" + "11" * 32) is None
        block = await client.ask("chain_getBlock", head)
        assert block["block"]["header"]["parentHash"] == "0x" + net.chain.hash_of(2).hex()
        assert len(block["block"]["extrinsics"]) == 1
        assert (await client.ask("chain_getBlock", "zz"))["code"] == rpc.INVALID_PARAMS

    run(net, talk)


def test_state_now_then_and_too_long_ago(net: Net) -> None:
    tempo = "0x" + bytes(net.codec.storage_key("SubtensorModule", "Tempo", [1])).hex()
    prefix = "0x" + bytes(net.codec.storage_prefix("SubtensorModule", "Tempo")).hex()
    net.sudo("AdminUtils", "sudo_set_tempo", netuid=1, tempo=7)
    before = "0x" + net.chain.head.hash.hex()
    net.sudo("AdminUtils", "sudo_set_tempo", netuid=1, tempo=9)

    async def talk(client: Client) -> None:
        assert await client.ask("state_getStorage", tempo) == "0x0900"
        assert await client.ask("state_getStorageAt", tempo, before) == "0x0700"
        assert await client.ask("state_getStorageSize", tempo) == 2
        changes = await client.ask("state_queryStorageAt", [tempo, "0x00"], before)
        assert changes == [{"block": before, "changes": [[tempo, "0x0700"], ["0x00", None]]}]
        keys = await client.ask("state_getKeysPaged", prefix, 1, None, before)
        assert len(keys) == 1 and await client.ask("state_getKeysPaged", prefix, 5, keys[0]) == [tempo]
        assert (await client.ask("state_getKeysPaged", prefix, 5000))["code"] == 4002
        missing = await client.ask("state_getStorage", tempo, "0x" + "11" * 32)
        assert missing["code"] == 4003 and "Header was not found" in missing["message"]
        net.produce(301)
        old = await client.ask("state_getStorage", tempo, before)
        assert old["code"] == 4003 and f"State already discarded for {before}" in old["message"]
        assert (await client.ask("chain_getHeader", before))["number"] == "0x1"
        assert "specVersion" in await client.ask("state_getRuntimeVersion", before), "blocks outlive their state"
        assert (await client.ask("state_getRuntimeVersion", "0x" + "11" * 32))["code"] == 4003

    run(net, talk)


def test_metadata_and_runtime_calls(net: Net) -> None:
    async def talk(client: Client) -> None:
        v15 = bytes.fromhex((await client.ask("state_call", "Metadata_metadata_at_version", "0x0f000000"))[2:])
        assert v15[0] == 1 and v15.endswith(net.chain.runtime.v15)
        assert await client.ask("state_call", "Metadata_metadata_at_version", "0x63000000") == "0x00"
        assert await client.ask("state_getMetadata") == "0x" + net.chain.runtime.v14.hex()
        missing = await client.ask("state_call", "Core_execute_block", "0x")
        assert "Exported method Core_execute_block is not found" in missing["message"]
        version = await client.ask("state_getRuntimeVersion")
        assert version["specVersion"] == net.codec.spec_version and version["transactionVersion"] == 1

    run(net, talk)


def test_heads_and_storage_are_pushed(net: Net) -> None:
    number = "0x" + bytes(net.codec.storage_key("System", "Number", [])).hex()

    async def talk(client: Client) -> None:
        heads = await client.ask("chain_subscribeNewHeads")
        assert (await client.receive())["params"] == {"subscription": heads, "result": Header.of(net.chain.head).json()}
        values = await client.ask("state_subscribeStorage", [number])
        assert (await client.receive())["params"]["result"]["changes"] == [[number, None]]
        net.produce()
        first, second = await client.receive(), await client.receive()
        assert (first["method"], first["params"]["result"]["number"]) == ("chain_newHead", "0x1")
        assert second["params"]["subscription"] == values
        assert second["params"]["result"]["changes"] == [[number, "0x01000000"]]
        assert await client.ask("chain_unsubscribeNewHeads", heads) is True
        assert await client.ask("chain_unsubscribeNewHeads", heads) is False
        net.produce()
        assert (await client.receive())["method"] == "state_storage"

    run(net, talk)


def test_submission_is_watched_to_its_block(net: Net) -> None:
    raw = "0x" + net.sign(key("Alice"), net.compose("System", "remark", remark=b"")).hex()

    async def talk(client: Client) -> None:
        identity = await client.ask("author_submitAndWatchExtrinsic", raw)
        updates = []
        for update in ("ready", "inBlock", "finalized"):
            if update == "inBlock":
                net.produce()
            message = await client.receive()
            assert message["method"] == "author_extrinsicUpdate" and message["params"]["subscription"] == identity
            updates.append(message["params"]["result"])
        block = "0x" + net.chain.head.hash.hex()
        assert updates == ["ready", {"inBlock": block}, {"finalized": block}]
        assert await client.ask("author_unwatchExtrinsic", identity) is True
        assert await client.ask("system_accountNextIndex", net.address("Alice")) == 1
        assert (await client.ask("account_nextIndex", "nobody"))["code"] == rpc.INVALID_PARAMS

    run(net, talk)


def test_refused_submissions_carry_the_nodes_codes(net: Net) -> None:
    good = net.sign(key("Alice"), net.compose("System", "remark", remark=b""))

    async def talk(client: Client) -> None:
        forged = "0x" + (good[:40] + bytes([good[40] ^ 1]) + good[41:]).hex()
        for method in ("author_submitExtrinsic", "author_submitAndWatchExtrinsic"):
            error = await client.ask(method, forged)
            assert (error["code"], error["message"]) == (1010, "Invalid Transaction")
            assert error["data"] == "Transaction has a bad signature"
            assert (await client.ask(method, "0x00"))["code"] == 1002
            assert (await client.ask(method, 5))["code"] == rpc.INVALID_PARAMS
        assert (await client.ask("author_submitExtrinsic", "0x" + good.hex())).startswith("0x")
        assert (await client.ask("author_submitExtrinsic", "0x" + good.hex()))["code"] == 1013
        assert await client.ask("author_pendingExtrinsics") == ["0x" + good.hex()]

    run(net, talk)


def test_subscriptions_are_bounded_and_end_with_their_connection(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "MAX_SUBSCRIPTIONS", 2)

    async def talk(client: Client) -> None:
        await client.ask("state_subscribeRuntimeVersion")
        await client.receive()
        await client.ask("chain_subscribeNewHeads")
        await client.receive()
        assert (await client.ask("chain_subscribeNewHeads"))["code"] == -32006

    run(net, talk)
    net.produce()


def test_a_client_that_never_reads_is_let_go(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "MAX_UNSENT", 4)

    async def main() -> None:
        async with served(net) as (client, _):
            await client.ask("chain_subscribeNewHeads")
            # Not one turn of the loop: nothing can be sent meanwhile.
            net.produce(10)
            with pytest.raises(ConnectionClosed):
                while True:
                    await client.receive()

    asyncio.run(main())


def test_connections_are_bounded(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "MAX_CONNECTIONS", 1)

    async def main() -> None:
        async with served(net) as (client, port):
            assert await client.ask("system_chain") == "test"
            async with connect(f"ws://127.0.0.1:{port}") as second:
                with pytest.raises(ConnectionClosed):
                    await asyncio.wait_for(second.recv(), DEADLINE)

    asyncio.run(main())


def test_foreign_web_pages_are_turned_away(net: Net) -> None:
    async def main() -> None:
        with pytest.raises(InvalidStatus):
            async with served(net, origin="https://evil.example"):
                pass
        async with served(net, origin="http://localhost:3000") as (client, _):
            assert await client.ask("system_name") == "sn38-localnet"

    asyncio.run(main())


def test_an_oversized_frame_ends_the_connection(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "MAX_REQUEST_BYTES", 1000)

    async def main() -> None:
        async with served(net) as (client, _):
            with pytest.raises(ConnectionClosed):
                await client.send("x" * 2000)

    asyncio.run(main())


def test_small_talk(net: Net) -> None:
    async def talk(client: Client) -> None:
        assert (await client.ask("system_properties"))["tokenSymbol"] == "TAO"
        assert (await client.ask("system_health"))["isSyncing"] is False
        methods = (await client.ask("rpc_methods"))["methods"]
        assert {"chain_getBlock", "state_getStorageAt", "author_submitAndWatchExtrinsic"} <= set(methods)
        for method in methods:
            if method.startswith("system_") and method != "system_accountNextIndex":
                await client.ask(method)

    run(net, talk)

"""kill -9 at any instant: what was reported final is there after it, exactly once, and the chain goes on from it."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import shutil
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from subnet.localnet import Localnet
from subnet.localnet.chain import Chain, Header
from subnet.localnet.dispatch import Rules
from subnet.localnet.errors import LocalnetError
from subnet.localnet.executive import BASE_FEE, BYTE_FEE
from subnet.localnet.genesis import ALICE_BALANCE, open_chain
from subnet.localnet.runtime import ChainRuntime
from subnet.localnet.store import FILE_NAME, Store
from tests.localnet.audit import audit
from tests.localnet.conftest import key

BLOCK_TIME = 0.02
PATIENCE = 30.0
IN_FLIGHT = 40
MOST_HEADS = 8
START_SECONDS = (0.05, 0.6)
"""When a chain that is killed as it starts is killed: from before it opens its file until after its first block."""


@dataclass
class Book:
    """What the client sent, and what it was told."""

    sent: dict[bytes, tuple[str, int]] = field(default_factory=dict)
    """Extrinsic to receiver and rao."""
    final: dict[bytes, str] = field(default_factory=dict)
    """Extrinsic to the block it was reported final in."""
    heads: dict[int, str] = field(default_factory=dict)
    killed_starting: int = 0
    killed_running: int = 0


class Payer:
    """//Alice paying many receivers, as many transfers at once as the chain takes."""

    def __init__(self, socket: ClientConnection, book: Book, chance: random.Random) -> None:
        self._socket = socket
        self._book = book
        self._chance = chance
        self._codec = ChainRuntime.build(round(BLOCK_TIME * 1000)).codec
        self._identities = itertools.count()
        self._requests: dict[int, bytes | str] = {}
        self._watched: dict[str, bytes] = {}
        self._flying = 0

    async def pay_until(self, heads: int) -> None:
        """Pays, and notes what is reported, until so many heads were seen."""
        genesis = bytes.fromhex((await self._first("chain_getBlockHash", 0))[2:])
        nonce = await self._first("system_accountNextIndex", key("Alice").ss58_address)
        await self._ask("heads", "chain_subscribeNewHeads")
        while heads:
            while self._flying < IN_FLIGHT:
                await self._pay(genesis, nonce)
                nonce += 1
            heads -= self._note(json.loads(await asyncio.wait_for(self._socket.recv(), PATIENCE)))

    async def listen(self) -> None:
        """Notes what is still reported until the connection breaks."""
        while True:
            self._note(json.loads(await asyncio.wait_for(self._socket.recv(), PATIENCE)))

    async def _first(self, method: str, *params: Any) -> Any:
        await self._ask(method, method, *params)
        return json.loads(await asyncio.wait_for(self._socket.recv(), PATIENCE))["result"]

    async def _ask(self, about: bytes | str, method: str, *params: Any) -> None:
        identity = next(self._identities)
        self._requests[identity] = about
        await self._socket.send(json.dumps({"jsonrpc": "2.0", "id": identity, "method": method, "params": params}))

    async def _pay(self, genesis: bytes, nonce: int) -> None:
        dest, value = key(f"receiver-{self._chance.randrange(20)}").ss58_address, self._chance.randrange(10**3, 10**9)
        call = bytes(self._codec.compose_call("Balances", "transfer_keep_alive", {"dest": dest, "value": value}))
        terms: dict[str, Any] = {"era": "00", "nonce": nonce, "tip": 0, "tip_asset_id": None}
        payload = self._codec.signature_payload(
            call, **terms, genesis_hash=genesis, era_block_hash=genesis, metadata_hash=None
        )
        raw, _ = self._codec.encode_signed_extrinsic(
            call,
            public_key=bytes(key("Alice").public_key),
            signature=key("Alice").sign(bytes(payload)),
            signature_version=1,
            metadata_hash_enabled=False,
            **terms,
        )
        self._book.sent[bytes(raw)] = (dest, value)
        self._flying += 1
        await self._ask(bytes(raw), "author_submitAndWatchExtrinsic", "0x" + bytes(raw).hex())

    def _note(self, message: dict[str, Any]) -> int:
        """Notes one message; 1 when it is a head."""
        if "id" in message:
            about = self._requests.pop(message["id"])
            if isinstance(about, bytes):
                self._watched[message["result"]] = about
            return 0
        subscription, news = message["params"]["subscription"], message["params"]["result"]
        if message["method"] == "chain_newHead":
            self._book.heads[int(news["number"], 16)] = news["parentHash"]
            return 1
        if isinstance(news, dict) and "finalized" in news:
            self._book.final[self._watched[subscription]] = news["finalized"]
            self._flying -= 1
        return 0


async def live(net: Localnet, book: Book, chance: random.Random) -> None:
    """Pays until the chain is killed, at a moment between two of its blocks that chance has chosen."""
    async with connect(net.endpoint) as socket:
        payer = Payer(socket, book, random.Random(len(book.sent)))
        await payer.pay_until(chance.randrange(1, MOST_HEADS))
        asyncio.get_running_loop().call_later(chance.uniform(0, BLOCK_TIME), net.kill)
        with pytest.raises(ConnectionClosed):
            await payer.listen()
    book.killed_running += 1


def die_starting(net: Localnet, book: Book, chance: random.Random) -> None:
    """Kills the chain a moment after its process began, ready or not."""
    fall = threading.Timer(chance.uniform(*START_SECONDS), lambda: os.kill(net.pid, signal.SIGKILL))
    fall.start()
    try:
        net.start()
    except LocalnetError:
        fall.join()
    else:
        fall.join()
        net.kill()
    book.killed_starting += 1


def opened(folder: Path, copy: Path) -> Iterator[Chain]:
    """The chain as the kill left it, from a copy: opening a file already mends it."""
    shutil.copytree(folder, copy)
    store = Store(copy)
    try:
        yield open_chain(store, BLOCK_TIME, Rules())[0]
    finally:
        store.close()
        shutil.rmtree(copy)


def inspect(chain: Chain, book: Book) -> None:
    """Asserts that all that was reported is there, nothing else is, and every balance follows from it."""
    links: dict[str, tuple[int, tuple[bytes, ...]]] = {}
    parent = bytes(32)
    included: list[bytes] = []
    for number in range(chain.head.number + 1):
        block = chain.store.block(number)
        assert block is not None and Header.of(block).parent == parent and Header.of(block).hash == block.hash
        assert book.heads.get(number, "0x" + parent.hex()) == "0x" + parent.hex()
        links["0x" + block.hash.hex()] = (number, block.body)
        included += block.body[1:]
        parent = block.hash
    assert max(book.heads, default=0) <= chain.head.number, "an announced block is gone"
    for raw, block_hash in book.final.items():
        assert raw in links[block_hash][1], "an extrinsic reported final is gone"
    assert len(set(included)) == len(included) and set(included) <= book.sent.keys()

    received: Counter[str] = Counter()
    for raw in included:
        dest, value = book.sent[raw]
        received[dest] += value
    account = chain.ledger.get("System", "Account", key("Alice").ss58_address)
    fees = sum(BASE_FEE + BYTE_FEE * len(raw) for raw in included)
    assert account["nonce"] == len(included)
    assert account["data"]["free"] == ALICE_BALANCE - received.total() - fees
    for dest, amount in received.items():
        assert chain.ledger.get("System", "Account", dest)["data"]["free"] == amount
    audit(chain.ledger)


def endure(kills: int, folder: Path, seed: int) -> Book:
    """So many lives of one chain, inspected after each."""
    chance, book = random.Random(seed), Book()
    net = Localnet(state=folder / "chain", block_time=BLOCK_TIME)
    sealed = 0
    for _ in range(kills):
        if chance.random() < 0.3:
            die_starting(net, book, chance)
        else:
            ready = net.start()
            assert int(ready.rstrip(")\n").split("block ")[1]) == sealed + 1, "it did not go on from its last block"
            asyncio.run(live(net, book, chance))
        if (folder / "chain" / FILE_NAME).exists():
            for chain in opened(folder / "chain", folder / "copy"):
                inspect(chain, book)
                assert chain.head.number >= sealed
                sealed = chain.head.number
    return book


def report(book: Book) -> str:
    return (
        f"{book.killed_running} kills running, {book.killed_starting} starting; {len(book.sent)} extrinsics sent, "
        f"{len(book.final)} reported final and all there; {max(book.heads)} blocks"
    )


def test_nothing_reported_final_is_lost_in_a_few_kills(tmp_path: Path) -> None:
    book = endure(5, tmp_path, seed=3)
    assert book.killed_starting == 2 and book.killed_running == 3 and len(book.final) > 50, report(book)


@pytest.mark.slow
def test_nothing_reported_final_is_lost_in_two_hundred_kills(tmp_path: Path) -> None:
    book = endure(200, tmp_path, seed=38)
    print(report(book))
    assert book.killed_starting + book.killed_running == 200 and len(book.final) > 5000

"""A real, older Subtensor runtime that makes blocks on demand: what the embedded chain's consensus is compared with.

It runs in Chopsticks, which the developer starts (docs/localnet.md says how); nothing of it is part of this project.
"""

from __future__ import annotations

import json
from typing import Any

from bittensor_core import Keypair, Runtime
from websockets.sync.client import connect

from subnet.localnet.ledger import Codec, Ledger

DEADLINE_S = 120


class Oracle:
    """A connection to Chopsticks in manual block mode; call `rewind` before every scenario."""

    def __init__(self, endpoint: str) -> None:
        self._socket = connect(endpoint, max_size=None, open_timeout=DEADLINE_S)
        self._asked = 0
        version = self.call("state_getRuntimeVersion")
        self._terms = version["specVersion"], version["transactionVersion"]
        self.runtime = Runtime(bytes.fromhex(self.call("state_getMetadata")[2:]), *self._terms, 42)
        self.genesis = bytes.fromhex(self.call("chain_getBlockHash", 0)[2:])
        self.ledger = _Remote(self)
        self._nonces: dict[str, int] = {}

    def close(self) -> None:
        self._socket.close()

    def call(self, method: str, *params: Any) -> Any:
        """RuntimeError with the node's words if it refuses."""
        self._asked += 1
        self._socket.send(json.dumps({"jsonrpc": "2.0", "id": self._asked, "method": method, "params": params}))
        answer = json.loads(self._socket.recv(timeout=DEADLINE_S))
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def rewind(self) -> None:
        """Back to the first block, with nothing seeded."""
        self.call("dev_setHead", 1)
        self._nonces.clear()

    def produce(self, number: int) -> None:
        """Makes the block of this number next, with what was submitted; those between are never made."""
        self.call("dev_newBlock", {"unsafeBlockHeight": number})

    def write(self) -> None:
        """Writes what was put into `ledger` since the last call into the state at the head."""
        self.call("dev_setStorage", self.ledger.staged())

    def get(self, item: str, *keys: Any) -> Any:
        return self.ledger.get("SubtensorModule", item, *keys)

    def submit(self, signer: Keypair, pallet: str, name: str, /, **arguments: Any) -> None:
        """Queues a signed, immortal extrinsic for the next block."""
        call = self.runtime.compose_call(pallet, name, arguments)
        nonce = self._nonces.get(signer.ss58_address, 0)
        self._nonces[signer.ss58_address] = nonce + 1
        terms = {"era": "00", "nonce": nonce, "tip": 0, "tip_asset_id": None}
        payload = self.runtime.signature_payload(
            call, **terms, genesis_hash=self.genesis, era_block_hash=self.genesis, metadata_hash=None
        )
        raw, _ = self.runtime.encode_signed_extrinsic(
            call,
            public_key=bytes(signer.public_key),
            signature=signer.sign(bytes(payload)),
            signature_version=signer.crypto_type,
            metadata_hash_enabled=False,
            **terms,
        )
        self.call("author_submitExtrinsic", "0x" + bytes(raw).hex())


class _Head:
    """The raw state at the oracle's head (a `Reader`)."""

    def __init__(self, oracle: Oracle) -> None:
        self._oracle = oracle

    def get(self, key: bytes) -> bytes | None:
        raw = self._oracle.call("state_getStorage", "0x" + key.hex())
        return None if raw is None else bytes.fromhex(raw[2:])

    def keys(self, prefix: bytes) -> list[bytes]:
        found = self._oracle.call("state_getKeysPaged", "0x" + prefix.hex(), 1000, None)
        return [bytes.fromhex(key[2:]) for key in found]


class _Remote(Ledger):
    """The oracle's state; writes are kept until `Oracle.write`."""

    def __init__(self, oracle: Oracle) -> None:
        super().__init__(Codec(oracle.runtime), _Head(oracle))
        self._staged: list[tuple[str, str | None]] = []

    def write(self, key: bytes, value: bytes | None) -> None:
        self._staged.append(("0x" + key.hex(), None if value is None else "0x" + value.hex()))

    def staged(self) -> list[tuple[str, str | None]]:
        staged, self._staged = self._staged, []
        return staged

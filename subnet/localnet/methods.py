"""The node's JSON-RPC methods: chain_, state_, author_, system_ and account_ as a Substrate node offers them to
the SDK.

Only translation between JSON and chain.py, and the fan-out of new blocks to subscriptions. Error codes and texts
are Substrate's, since the SDK recognises refusals by them.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Any

from bittensor_core import ss58_decode

from subnet.localnet import runtime_api
from subnet.localnet.chain import Chain, Header, hex0x
from subnet.localnet.extrinsic import MAX_BYTES, Invalid
from subnet.localnet.ledger import Ledger
from subnet.localnet.metadata import SS58_PREFIX
from subnet.localnet.rpc import INVALID_PARAMS, Connection, Method, RpcError, Subscription
from subnet.localnet.runtime import VERSION
from subnet.localnet.state import StateDiscarded, page
from subnet.localnet.store import StoredBlock

MAX_KEYS = 1000
"""Keys of one page, and of one query."""


def _parameter(params: list[Any], index: int, default: Any = None) -> Any:
    return params[index] if len(params) > index else default


def _bytes(value: Any, what: str) -> bytes:
    """Bytes of a 0x-hex parameter."""
    if isinstance(value, str):
        try:
            return bytes.fromhex(value.removeprefix("0x"))
        except ValueError:
            pass
    raise RpcError(INVALID_PARAMS, f"Invalid params: {what} must be hexadecimal")


class Methods:
    """The method table over one chain."""

    def __init__(self, chain: Chain, chain_name: str) -> None:
        self._chain = chain
        self._name = chain_name
        self._heads: dict[str, Subscription] = {}
        self._storage: dict[str, tuple[Subscription, list[bytes]]] = {}
        chain.on_block.append(self._announce)

    def table(self) -> dict[str, Method]:
        """Every method by its RPC name."""
        table: dict[str, Method] = {
            "chain_getBlockHash": self._block_hash,
            "chain_getHeader": lambda _, params: self._header(self._block(_parameter(params, 0))),
            "chain_getBlock": lambda _, params: self._whole(self._block(_parameter(params, 0))),
            "chain_subscribeNewHeads": lambda connection, _: self._subscribe_heads(connection, "chain_newHead"),
            "chain_subscribeAllHeads": lambda connection, _: self._subscribe_heads(connection, "chain_allHead"),
            "chain_subscribeFinalizedHeads": lambda connection, _: self._subscribe_heads(
                connection, "chain_finalizedHead"
            ),
            "state_getRuntimeVersion": lambda _, params: self._known(_parameter(params, 0)) and VERSION,
            "state_subscribeRuntimeVersion": self._subscribe_version,
            "state_getMetadata": lambda _, params: (
                self._known(_parameter(params, 0)) and hex0x(self._chain.runtime.v14)
            ),
            "state_getStorage": self._get_storage,
            "state_getStorageHash": self._get_storage_hash,
            "state_getStorageSize": self._get_storage_size,
            "state_queryStorageAt": self._query_storage,
            "state_getKeysPaged": self._get_keys,
            "state_call": self._call,
            "state_subscribeStorage": self._subscribe_storage,
            "author_submitExtrinsic": self._submit,
            "author_submitAndWatchExtrinsic": self._submit_and_watch,
            "author_pendingExtrinsics": lambda *_: [hex0x(item.raw) for item in self._chain.mempool],
            "system_accountNextIndex": self._next_index,
            "system_chain": lambda *_: self._name,
            "system_chainType": lambda *_: "Development",
            "system_name": lambda *_: VERSION["implName"],
            "system_version": lambda *_: f"{VERSION['specVersion']}.0",
            "system_health": lambda *_: {"peers": 0, "isSyncing": False, "shouldHavePeers": False},
            "system_properties": lambda *_: {"ss58Format": SS58_PREFIX, "tokenDecimals": 9, "tokenSymbol": "TAO"},
            "system_nodeRoles": lambda *_: ["Authority"],
            "system_peers": lambda *_: [],
            "system_syncState": self._sync_state,
            "rpc_methods": lambda *_: {"methods": sorted(table)},
        }
        for name in ("chain_unsubscribeNewHeads", "chain_unsubscribeAllHeads", "chain_unsubscribeFinalizedHeads"):
            table[name] = _unsubscribe
        for name in ("state_unsubscribeStorage", "state_unsubscribeRuntimeVersion", "author_unwatchExtrinsic"):
            table[name] = _unsubscribe
        for alias, name in ALIASES.items():
            table[alias] = table[name]
        return table

    def _announce(self, block: StoredBlock, changed: set[bytes]) -> None:
        header = self._header(block)
        for subscription in list(self._heads.values()):
            subscription.notify(header)
        for subscription, keys in list(self._storage.values()):
            touched = [key for key in keys if key in changed]
            if touched:
                subscription.notify(self._changes(block.hash, touched))

    def _block(self, block_hash: Any) -> StoredBlock | None:
        return self._chain.block(None if block_hash is None else _bytes(block_hash, "the block hash"))

    def _known(self, block_hash: Any) -> StoredBlock:
        block = self._block(block_hash)
        if block is None:
            message = f"Client error: UnknownBlock: Header was not found in the database: {block_hash}"
            raise RpcError(4003, message)
        return block

    def _ledger(self, block_hash: Any) -> Ledger:
        block = self._known(block_hash)
        try:
            return self._chain.ledger_at(block.number)
        except StateDiscarded:
            message = f"Client error: UnknownBlock: State already discarded for {hex0x(block.hash)}"
            raise RpcError(4003, message) from None

    def _block_hash(self, _: Connection, params: list[Any]) -> Any:
        number = _parameter(params, 0)
        if number is None:
            return hex0x(self._chain.head.hash)
        if isinstance(number, list):
            return [self._block_hash(_, [item]) for item in number[:MAX_KEYS]]
        try:
            wanted = int(number, 0) if isinstance(number, str) else int(number)
        except (TypeError, ValueError):
            raise RpcError(INVALID_PARAMS, "Invalid params: a block number was expected") from None
        found = self._chain.hash_of(wanted) if 0 <= wanted <= self._chain.head.number else None
        return found and hex0x(found)

    @staticmethod
    def _header(block: StoredBlock | None) -> Any:
        return block and Header.of(block).json()

    def _whole(self, block: StoredBlock | None) -> Any:
        if block is None:
            return None
        return {
            "block": {"header": self._header(block), "extrinsics": [hex0x(item) for item in block.body]},
            "justifications": None,
        }

    def _subscribe_heads(self, connection: Connection, notification: str) -> str:
        subscription = _opened(connection, notification, self._heads)
        subscription.notify(self._header(self._chain.head))
        return subscription.identity

    def _subscribe_version(self, connection: Connection, _: list[Any]) -> str:
        subscription = connection.subscribe("state_runtimeVersion")
        subscription.notify(VERSION)
        return subscription.identity

    def _subscribe_storage(self, connection: Connection, params: list[Any]) -> str:
        keys = self._keys(_parameter(params, 0))
        subscription = connection.subscribe("state_storage")
        self._storage[subscription.identity] = (subscription, keys)
        subscription.on_close = lambda: self._storage.pop(subscription.identity, None)
        subscription.notify(self._changes(self._chain.head.hash, keys))
        return subscription.identity

    @staticmethod
    def _keys(value: Any) -> list[bytes]:
        if not isinstance(value, list) or len(value) > MAX_KEYS:
            raise RpcError(INVALID_PARAMS, f"Invalid params: a list of at most {MAX_KEYS} storage keys was expected")
        return [_bytes(key, "a storage key") for key in value]

    def _changes(self, block_hash: bytes, keys: list[bytes]) -> dict[str, Any]:
        reader = self._ledger(hex0x(block_hash)).reader
        return {"block": hex0x(block_hash), "changes": [[hex0x(key), _hex(reader.get(key))] for key in keys]}

    def _get_storage(self, _: Connection, params: list[Any]) -> str | None:
        return _hex(self._read(params))

    def _get_storage_hash(self, _: Connection, params: list[Any]) -> str | None:
        value = self._read(params)
        return None if value is None else hex0x(blake2b(value, digest_size=32).digest())

    def _get_storage_size(self, _: Connection, params: list[Any]) -> int | None:
        value = self._read(params)
        return None if value is None else len(value)

    def _read(self, params: list[Any]) -> bytes | None:
        return self._ledger(_parameter(params, 1)).reader.get(_bytes(_parameter(params, 0), "the storage key"))

    def _query_storage(self, _: Connection, params: list[Any]) -> list[dict[str, Any]]:
        at = _parameter(params, 1) or hex0x(self._chain.head.hash)
        return [self._changes(_bytes(at, "the block hash"), self._keys(_parameter(params, 0)))]

    def _get_keys(self, _: Connection, params: list[Any]) -> list[str]:
        count = _parameter(params, 1, MAX_KEYS)
        if not isinstance(count, int) or not 0 < count <= MAX_KEYS:
            raise RpcError(4002, f"count exceeds maximum value. value: {count}, max: {MAX_KEYS}")
        after = _parameter(params, 2)
        prefix = _bytes(_parameter(params, 0, "0x"), "the prefix")
        reader = self._ledger(_parameter(params, 3)).reader
        return [hex0x(key) for key in page(reader, prefix, count, _bytes(after, "the start key") if after else b"")]

    def _call(self, _: Connection, params: list[Any]) -> str:
        name, data = _parameter(params, 0), _bytes(_parameter(params, 1, "0x"), "the call's data")
        ledger = self._ledger(_parameter(params, 2))
        call = runtime_api.Call(ledger, self._chain.runtime, self._known(_parameter(params, 2)).number)
        try:
            return hex0x(runtime_api.answer(call, str(name), data))
        except runtime_api.NotExported:
            message = (
                f"Client error: Execution failed: Execution aborted due to trap: Exported method {name} is not found"
            )
            raise RpcError(4003, message) from None
        except runtime_api.BadInput as error:
            raise RpcError(
                4003, f"Client error: Execution failed: Bad input data provided to {name}: {error}"
            ) from None

    def _submit(self, _: Connection, params: list[Any]) -> str:
        return hex0x(self._accept(params, None))

    def _submit_and_watch(self, connection: Connection, params: list[Any]) -> str:
        subscription = connection.subscribe("author_extrinsicUpdate")
        subscription.on_close = lambda: self._chain.mempool.unwatch(subscription.notify)
        try:
            self._accept(params, subscription.notify)
        except RpcError:
            subscription.close()
            raise
        return subscription.identity

    def _accept(self, params: list[Any], watcher: Callable[[Any], None] | None) -> bytes:
        raw = _parameter(params, 0)
        if not isinstance(raw, str) or len(raw) > 2 * MAX_BYTES + 2:
            raise RpcError(INVALID_PARAMS, f"Invalid params: an extrinsic of at most {MAX_BYTES} bytes was expected")
        try:
            return self._chain.submit(_bytes(raw, "the extrinsic"), watcher).hash
        except Invalid as error:
            raise RpcError(error.code, error.message, error.detail) from None

    def _next_index(self, _: Connection, params: list[Any]) -> int:
        account = _parameter(params, 0)
        try:
            ss58_decode(account)
        except (TypeError, ValueError):
            raise RpcError(INVALID_PARAMS, "Invalid params: an SS58 address was expected") from None
        return self._chain.mempool.next_index(account)

    def _sync_state(self, *_: Any) -> dict[str, int]:
        head = self._chain.head.number
        return {"startingBlock": 0, "currentBlock": head, "highestBlock": head}


ALIASES = {
    "chain_getHead": "chain_getBlockHash",
    "chain_getFinalizedHead": "chain_getBlockHash",
    "chain_getFinalisedHead": "chain_getBlockHash",
    "chain_getRuntimeVersion": "state_getRuntimeVersion",
    "chain_subscribeNewHead": "chain_subscribeNewHeads",
    "chain_unsubscribeNewHead": "chain_unsubscribeNewHeads",
    "chain_subscribeFinalisedHeads": "chain_subscribeFinalizedHeads",
    "chain_unsubscribeFinalisedHeads": "chain_unsubscribeFinalizedHeads",
    "state_getStorageAt": "state_getStorage",
    "state_getKeysPagedAt": "state_getKeysPaged",
    "state_callAt": "state_call",
    "account_nextIndex": "system_accountNextIndex",
}
"""Older names that Substrate still answers to, and the SDK uses."""


def _hex(value: bytes | None) -> str | None:
    return None if value is None else hex0x(value)


def _opened(connection: Connection, notification: str, kept: dict[str, Subscription]) -> Subscription:
    subscription = connection.subscribe(notification)
    kept[subscription.identity] = subscription
    subscription.on_close = lambda: kept.pop(subscription.identity, None)
    return subscription


def _unsubscribe(connection: Connection, params: list[Any]) -> bool:
    subscription = connection.subscriptions.get(str(_parameter(params, 0)))
    if subscription is None:
        return False
    subscription.close()
    return True

"""The chain's state as values: typed reads and writes of storage items over the raw bytes.

Not the bytes themselves (see state.py) and no rules. Keys and values go through `bittensor_core.Runtime`, the very
codec the SDK decodes with, so what is written here is what a client reads. Values are shared with a cache: treat
them as immutable, build a new one to change it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bittensor_core import Runtime

from subnet.localnet.state import Reader, State

MAX_CACHED = 50_000
"""Storage keys and decoded values remembered; both caches are emptied when full."""


@dataclass(frozen=True)
class Item:
    pallet: str
    name: str
    prefix: bytes
    value_type: str
    default: Any
    """What a missing entry reads as: the item's default, or None for an optional item."""
    free_keys: int


class Codec:
    """The runtime's storage codec with its caches; one per process, shared by every ledger."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self._items: dict[tuple[str, str], Item] = {}
        self._keys: dict[tuple[Any, ...], bytes] = {}

    def event(self, value: Any) -> bytes:
        """A RuntimeEvent, from `{pallet: {event: fields}}` or `{pallet: event}`."""
        record = {"phase": "Initialization", "event": value, "topics": []}
        return bytes(self.runtime.encode("EventRecord", record))[1:-1]  # between its phase and its topics, a byte each

    def item(self, pallet: str, name: str) -> Item:
        """KeyError when the metadata has no such item."""
        item = self._items.get((pallet, name))
        if item is None:
            entry = self.runtime.storage_entry(pallet, name)
            default = None
            if entry.modifier == "Default":
                default = self.runtime.decode(entry.value_type, bytes(entry.default_bytes))
            prefix = bytes(self.runtime.storage_prefix(pallet, name))
            item = Item(pallet, name, prefix, entry.value_type, default, len(entry.param_types))
            self._items[pallet, name] = item
        return item

    def key(self, item: Item, keys: tuple[Any, ...]) -> bytes:
        """The storage key; with fewer keys than the item has, the prefix they share."""
        if not keys:
            return item.prefix
        cached = (item.pallet, item.name, keys)
        try:
            found = self._keys.get(cached)
        except TypeError:  # a structured key, such as a rate limit's, does not hash
            return bytes(self.runtime.storage_key(item.pallet, item.name, list(keys)))
        if found is None:
            if len(self._keys) >= MAX_CACHED:
                self._keys.clear()
            found = self._keys[cached] = bytes(self.runtime.storage_key(item.pallet, item.name, list(keys)))
        return found


class Pallet:
    """One pallet's storage in one state. Accounts are SS58 strings, amounts are rao."""

    def __init__(self, ledger: Ledger, name: str) -> None:
        self._ledger = ledger
        self._name = name

    def get(self, item: str, *keys: Any) -> Any:
        return self._ledger.get(self._name, item, *keys)

    def has(self, item: str, *keys: Any) -> bool:
        codec = self._ledger.codec
        return self._ledger.reader.get(codec.key(codec.item(self._name, item), keys)) is not None

    def items(self, item: str, *keys: Any) -> Iterator[tuple[Any, Any]]:
        """(key, value) of every entry under the given leading keys, in key order; several free keys come as a tuple."""
        codec, reader = self._ledger.codec, self._ledger.reader
        entry = codec.item(self._name, item)
        for raw in reader.keys(codec.key(entry, keys)):
            free = codec.runtime.decode_storage_key_params(self._name, item, raw, len(keys))
            yield (tuple(free) if len(free) > 1 else free[0]), self._ledger.decode(entry, raw)

    def put(self, item: str, *keys_and_value: Any) -> None:
        """`put("Tempo", netuid, 360)`: the keys, then the value."""
        *keys, value = keys_and_value
        self._ledger.put(self._name, item, tuple(keys), value)

    def add(self, item: str, *keys_and_amount: Any) -> int:
        """Adds to a stored integer, and returns the sum."""
        *keys, amount = keys_and_amount
        total = self.get(item, *keys) + amount
        self._ledger.put(self._name, item, tuple(keys), total)
        return total

    def remove(self, item: str, *keys: Any) -> None:
        codec = self._ledger.codec
        self._ledger.write(codec.key(codec.item(self._name, item), keys), None)

    def clear(self, item: str, *keys: Any) -> None:
        """Removes every entry under the given leading keys."""
        codec = self._ledger.codec
        for raw in list(self._ledger.reader.keys(codec.key(codec.item(self._name, item), keys))):
            self._ledger.write(raw, None)


class Ledger:
    """Typed access to one state; writable only over the head's `State`."""

    def __init__(self, codec: Codec, reader: Reader) -> None:
        self.codec = codec
        self.reader = reader
        self._decoded: dict[bytes, tuple[bytes, Any]] = {}

    def pallet(self, name: str) -> Pallet:
        return Pallet(self, name)

    def get(self, pallet: str, name: str, *keys: Any) -> Any:
        """The value, or what a missing entry reads as."""
        item = self.codec.item(pallet, name)
        assert len(keys) == item.free_keys, f"{pallet}.{name} takes {item.free_keys} keys"
        return self.decode(item, self.codec.key(item, keys))

    def put(self, pallet: str, name: str, keys: tuple[Any, ...], value: Any) -> None:
        item = self.codec.item(pallet, name)
        assert len(keys) == item.free_keys, f"{pallet}.{name} takes {item.free_keys} keys"
        self.write(self.codec.key(item, keys), bytes(self.codec.runtime.encode(item.value_type, value)))

    def decode(self, item: Item, key: bytes) -> Any:
        raw = self.reader.get(key)
        if raw is None:
            return item.default
        cached = self._decoded.get(key)
        # The raw bytes decide whether the remembered value still holds, so a rollback needs no bookkeeping.
        if cached is not None and cached[0] == raw:
            return cached[1]
        value = self.codec.runtime.decode(item.value_type, raw)
        if len(self._decoded) >= MAX_CACHED:
            self._decoded.clear()
        self._decoded[key] = (raw, value)
        return value

    def write(self, key: bytes, value: bytes | None) -> None:
        assert isinstance(self.reader, State), "only the head's state can be written"
        self.reader.put(key, value)

"""The chain's raw state: storage keys and values as bytes, with nested transactions and an undo journal per block.

Not typed (see ledger.py), not on disk (see store.py), no Merkle trie. Substrate clients see exactly these bytes.
The journal holds what each block overwrote, so any of the last `HISTORY` blocks can still be read; the idea is a
database's rollback journal.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import Protocol

HISTORY = 300
"""Blocks whose state can be read; Substrate's own default is 256."""

ITEM_PREFIX = 32
"""Bytes of a storage item's prefix: twox128(pallet) ++ twox128(item)."""

MAX_VIEWS = 64

ROOT_MODULUS = 1 << 256

Journal = dict[bytes, "bytes | None"]
"""Key to the value it had before (None: it did not exist)."""


class StateDiscarded(LookupError):
    """The state of this block is older than the journal."""


class Reader(Protocol):
    """Read access to one state."""

    def get(self, key: bytes) -> bytes | None: ...

    def keys(self, prefix: bytes) -> list[bytes]:
        """All keys with this prefix, ascending."""
        ...


class State:
    """The state of the head block, being changed; `seal` closes a block."""

    def __init__(self, history: int = HISTORY) -> None:
        self.head = -1
        self._history = history
        self._values: dict[bytes, bytes] = {}
        self._index: dict[bytes, list[bytes]] = {}
        self._root = 0
        self._open: list[Journal] = [{}]
        self._journals: OrderedDict[int, Journal] = OrderedDict()
        self._views: OrderedDict[int, View] = OrderedDict()

    def load(self, values: Iterable[tuple[bytes, bytes]], journals: Iterable[tuple[int, Journal]], head: int) -> None:
        """Replaces everything by what a store kept. The journals must be those of the last blocks, ascending."""
        self._values = dict(values)
        self._root = sum(_entry_hash(key, value) for key, value in self._values.items()) % ROOT_MODULUS
        self._index.clear()
        for key in sorted(self._values):
            self._index.setdefault(key[:ITEM_PREFIX], []).append(key)
        self._open = [{}]
        self._journals = OrderedDict(journals)
        self._views.clear()
        self.head = head

    @property
    def root(self) -> bytes:
        """32 bytes that depend on every key and value: the sum of the entries' blake2b-256 hashes modulo 2**256."""
        return self._root.to_bytes(32, "little")

    def get(self, key: bytes) -> bytes | None:
        return self._values.get(key)

    def put(self, key: bytes, value: bytes | None) -> None:
        """Writes, or with None deletes; remembers the old value in the innermost open transaction."""
        old = self._values.get(key)
        if old == value:
            return
        self._open[-1].setdefault(key, old)
        self._write(key, value)

    def keys(self, prefix: bytes) -> list[bytes]:
        if len(prefix) >= ITEM_PREFIX:
            found = self._index.get(prefix[:ITEM_PREFIX], [])
            return found[bisect_left(found, prefix) : bisect_left(found, _after(prefix))] if found else []
        return sorted(key for key in self._values if key.startswith(prefix))

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        return iter(self._values.items())

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """What is written inside is undone if an exception leaves the block; transactions nest."""
        self._open.append({})
        try:
            yield
        except BaseException:
            for key, old in self._open.pop().items():
                self._write(key, old)
            raise
        journal = self._open.pop()
        for key, old in journal.items():
            self._open[-1].setdefault(key, old)

    def pending(self) -> dict[bytes, bytes | None]:
        """Key to new value (None: gone) for everything changed since the last `seal`."""
        return {key: self._values.get(key) for key, old in self._open[0].items() if self._values.get(key) != old}

    def undo(self) -> Journal:
        """What undoes everything changed since the last `seal`."""
        return {key: old for key, old in self._open[0].items() if self._values.get(key) != old}

    def seal(self, number: int) -> None:
        """Closes block `number`: its journal joins the history."""
        assert len(self._open) == 1, "a transaction is still open"
        self._journals[number] = self.undo()
        self._open = [{}]
        while len(self._journals) > self._history:
            self._journals.popitem(last=False)
        self.head = number

    def abandon(self) -> None:
        """Undoes everything since the last `seal`, open transactions included."""
        while self._open:
            for key, old in self._open.pop().items():
                self._write(key, old)
        self._open = [{}]

    def at(self, number: int) -> Reader:
        """The state as block `number` left it. Valid between blocks only, never while one is being made.

        Raises:
            StateDiscarded: the block is too old.
        """
        if number == self.head:
            return self
        if not self.head - len(self._journals) <= number < self.head:
            raise StateDiscarded(number)
        view = self._views.pop(number, None) or View(self, number)
        for later in range(view.until + 1, self.head + 1):
            view.extend(later, self._journals[later])
        self._views[number] = view
        while len(self._views) > MAX_VIEWS:
            self._views.popitem(last=False)
        return view

    def _write(self, key: bytes, value: bytes | None) -> None:
        old = self._values.get(key)
        if old is not None:
            self._root = (self._root - _entry_hash(key, old)) % ROOT_MODULUS
        if value is not None:
            self._root = (self._root + _entry_hash(key, value)) % ROOT_MODULUS
            if old is None:
                insort(self._index.setdefault(key[:ITEM_PREFIX], []), key)
            self._values[key] = value
        elif old is not None:
            del self._values[key]
            keys = self._index[key[:ITEM_PREFIX]]
            del keys[bisect_left(keys, key)]


class View:
    """The state of an older block: the head's, seen through the journals of the blocks since."""

    def __init__(self, state: State, number: int) -> None:
        self._state = state
        self._old: Journal = {}
        self.until = number

    def extend(self, number: int, journal: Journal) -> None:
        for key, old in journal.items():
            self._old.setdefault(key, old)
        self.until = number

    def get(self, key: bytes) -> bytes | None:
        return self._old[key] if key in self._old else self._state.get(key)

    def keys(self, prefix: bytes) -> list[bytes]:
        present = set(self._state.keys(prefix))
        for key, old in self._old.items():
            if key.startswith(prefix):
                (present.discard if old is None else present.add)(key)
        return sorted(present)


def page(reader: Reader, prefix: bytes, count: int, after: bytes = b"") -> list[bytes]:
    """At most `count` keys with this prefix, ascending, beginning behind `after`."""
    keys = reader.keys(prefix)
    start = bisect_right(keys, after) if after else 0
    return keys[start : start + count]


def _entry_hash(key: bytes, value: bytes) -> int:
    return int.from_bytes(blake2b(len(key).to_bytes(4, "little") + key + value, digest_size=32).digest(), "little")


def _after(prefix: bytes) -> bytes:
    """The smallest byte string greater than every string that begins with `prefix`."""
    trimmed = prefix.rstrip(b"\xff")
    return trimmed[:-1] + bytes([trimmed[-1] + 1]) if trimmed else b"\xff" * (len(prefix) + 1)

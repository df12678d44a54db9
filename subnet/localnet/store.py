"""The chain on disk: one SQLite file, each block one transaction.

Not the working state (see state.py, which is loaded from here at start). Write-ahead logging means a killed process
loses at most the block it was writing; the log is on the disk itself before a block is announced, so neither does a
power cut lose more. That costs a block some 4 ms on a solid-state disk (1 without), of the 250 it has. The state root
kept with every block tells a damaged file from a whole one.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from subnet.localnet.errors import LocalnetError
from subnet.localnet.state import HISTORY, Journal, State

KEEP_BLOCKS = 100_000
"""Headers and bodies kept: seven hours at 0.25 s, two weeks at 12 s."""

FILE_NAME = "chain.sqlite"
APPLICATION_ID = 0x736E3338
IDLE_BODY_BYTES = 64
"""No signed extrinsic is as short; a block's timestamp always is."""
FORMAT = 1

SCHEMA = f"""
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {FORMAT};
CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE state (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE blocks (number INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE, header BLOB NOT NULL, body BLOB NOT NULL);
CREATE TABLE journals (number INTEGER PRIMARY KEY, entries BLOB NOT NULL);
"""

_ABSENT = 0xFFFFFFFF
_LENGTHS = struct.Struct("<II")


@dataclass(frozen=True)
class StoredBlock:
    number: int
    hash: bytes
    """32 bytes, blake2b-256 of `header`."""
    header: bytes
    """SCALE."""
    body: tuple[bytes, ...]
    """Extrinsics with their length prefix, as chain_getBlock gives them."""


class Store:
    """An open chain file. Raises LocalnetError when the folder is not one of ours, damaged, newer, or in use."""

    def __init__(self, folder: Path | None) -> None:
        """`folder` is created if missing; None keeps the chain in memory."""
        self.folder = folder
        self._db = _open(folder)

    def close(self) -> None:
        self._db.close()

    @property
    def empty(self) -> bool:
        return self._db.execute("SELECT COUNT(*) FROM blocks").fetchone()[0] == 0

    def meta(self, name: str) -> bytes | None:
        row = self._db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return row and row[0]

    def create(self, genesis: StoredBlock, state: State, meta: dict[str, bytes]) -> None:
        with self._transaction():
            self._db.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
            self._db.executemany("INSERT INTO state VALUES (?, ?)", state.items())
            self._insert(genesis, {})

    def append(self, block: StoredBlock, changes: Journal, journal: Journal) -> None:
        """Writes a block with the state it leaves (`changes`: new values, None deletes) and what it overwrote.

        Raises:
            LocalnetError: it could not be written; nothing of it was.
        """
        try:
            self._append(block, changes, journal)
        except sqlite3.Error as error:
            remedy = "free some space, then start again"
            raise LocalnetError(f"cannot write block {block.number} to {self.folder}: {error}; {remedy}") from error

    def _append(self, block: StoredBlock, changes: Journal, journal: Journal) -> None:
        with self._transaction():
            upserts = [(key, value) for key, value in changes.items() if value is not None]
            self._db.executemany("INSERT INTO state VALUES (?1, ?2) ON CONFLICT DO UPDATE SET value = ?2", upserts)
            self._db.executemany("DELETE FROM state WHERE key = ?", [(k,) for k, v in changes.items() if v is None])
            self._insert(block, journal)
            self._db.execute("DELETE FROM journals WHERE number <= ?", (block.number - HISTORY,))
            self._db.execute("DELETE FROM blocks WHERE number > 0 AND number <= ?", (block.number - KEEP_BLOCKS,))

    def load(self, state: State) -> StoredBlock:
        """Fills `state` and returns the head block.

        Raises:
            LocalnetError: the file is damaged.
        """
        try:
            head = self._db.execute("SELECT MAX(number) FROM blocks").fetchone()[0]
            block = self.block(head)
            assert block is not None
            journals = [
                (number, unpack_journal(entries))
                for number, entries in self._db.execute(
                    "SELECT number, entries FROM journals WHERE number > 0 ORDER BY number"
                )
            ]
            state.load(self._db.execute("SELECT key, value FROM state"), journals, head)
        except (sqlite3.DatabaseError, struct.error) as error:
            raise _damaged(self.folder, str(error)) from error
        return block

    def damaged(self, reason: str) -> LocalnetError:
        return _damaged(self.folder, reason)

    def block(self, number: int) -> StoredBlock | None:
        return self._block("number = ?", number)

    def block_by_hash(self, block_hash: bytes) -> StoredBlock | None:
        return self._block("hash = ?", block_hash)

    def hash_of(self, number: int) -> bytes | None:
        row = self._db.execute("SELECT hash FROM blocks WHERE number = ?", (number,)).fetchone()
        return row and row[0]

    def busy_blocks(self, count: int) -> list[StoredBlock]:
        """The last blocks that hold more than a timestamp, at most `count`, oldest first."""
        query = "SELECT number, hash, header, body FROM blocks WHERE length(body) > ? ORDER BY number DESC LIMIT ?"
        rows = self._db.execute(query, (IDLE_BODY_BYTES, count)).fetchall()
        return [StoredBlock(number, key, header, tuple(_unpack_list(body))) for number, key, header, body in rows[::-1]]

    def _block(self, condition: str, value: int | bytes) -> StoredBlock | None:
        row = self._db.execute(f"SELECT number, hash, header, body FROM blocks WHERE {condition}", (value,)).fetchone()
        return StoredBlock(row[0], row[1], row[2], tuple(_unpack_list(row[3]))) if row else None

    def _insert(self, block: StoredBlock, journal: Journal) -> None:
        body = b"".join(_LENGTHS.pack(len(item), 0) + item for item in block.body)
        self._db.execute("INSERT INTO blocks VALUES (?, ?, ?, ?)", (block.number, block.hash, block.header, body))
        self._db.execute("INSERT INTO journals VALUES (?, ?)", (block.number, pack_journal(journal)))

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")


def pack_journal(journal: Journal) -> bytes:
    """Per entry: key length and value length (0xFFFFFFFF: absent) as u32 little-endian, then the two."""
    return b"".join(
        _LENGTHS.pack(len(key), _ABSENT if value is None else len(value)) + key + (value or b"")
        for key, value in journal.items()
    )


def unpack_journal(data: bytes) -> Journal:
    """Inverse of `pack_journal`; struct.error when the data is cut short."""
    journal: Journal = {}
    at = 0
    while at < len(data):
        key_length, value_length = _LENGTHS.unpack_from(data, at)
        at += _LENGTHS.size
        key = data[at : at + key_length]
        at += key_length
        journal[key] = None if value_length == _ABSENT else data[at : at + value_length]
        at += 0 if value_length == _ABSENT else value_length
    if at != len(data):
        raise struct.error("the last entry is cut short")
    return journal


def _unpack_list(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        length, _ = _LENGTHS.unpack_from(data, at)
        at += _LENGTHS.size
        yield data[at : at + length]
        at += length


def _open(folder: Path | None) -> sqlite3.Connection:
    if folder is None:
        database = sqlite3.connect(":memory:", isolation_level=None)
        database.executescript(SCHEMA)
        return database
    path = folder / FILE_NAME
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not path.exists() and any(folder.iterdir()):
            raise LocalnetError(
                f"{folder} is not empty and holds no localnet chain; choose another folder with --state"
            )
        database = sqlite3.connect(path, isolation_level=None, timeout=0)
    except (OSError, sqlite3.Error) as error:
        raise LocalnetError(f"cannot open the state folder {folder}: {error}; choose another with --state") from error
    try:
        database.execute("PRAGMA locking_mode = EXCLUSIVE")
        if not _check(database, path):
            database.executescript(f"BEGIN EXCLUSIVE; {SCHEMA} COMMIT;")
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        database.execute("BEGIN EXCLUSIVE")
        database.execute("COMMIT")
    except sqlite3.OperationalError as error:
        database.close()
        if "locked" in str(error):
            raise LocalnetError(
                f"{folder} is in use by another localnet; stop it, or choose another with --state"
            ) from error
        raise LocalnetError(f"cannot use the state folder {folder}: {error}; choose another with --state") from error
    except sqlite3.DatabaseError as error:
        database.close()
        raise _damaged(folder, str(error)) from error
    except LocalnetError:
        database.close()
        raise
    return database


def _check(database: sqlite3.Connection, path: Path) -> bool:
    """False when the file holds nothing yet: it is new, or its making was interrupted."""
    if database.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0] == 0:
        return False
    identity = database.execute("PRAGMA application_id").fetchone()[0]
    if identity != APPLICATION_ID:
        raise LocalnetError(f"{path} is a database of another program; choose another folder with --state")
    version = database.execute("PRAGMA user_version").fetchone()[0]
    if version != FORMAT:
        raise LocalnetError(
            f"{path} has format {version}, this version reads {FORMAT}; choose another folder with --state"
        )
    return True


def _damaged(folder: Path | None, reason: str) -> LocalnetError:
    return LocalnetError(
        f"the chain in {folder} is damaged ({reason}); move it away, or choose another folder with --state"
    )

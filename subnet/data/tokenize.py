"""Documents to token shards on all cores. Killed at any instant, it goes on where it was, and the bytes are the same.

The folder holds the token files, a copy of the tokenizer, `journal.json` (what was read, and how far) and at last the
manifest, which makes it a folder of shards. The journal is written after the tokens it tells of are on the disk.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from subnet.data.documents import Batch, DataFile, Position, read
from subnet.data.encoders import Encoders
from subnet.data.shards import DTYPES, MANIFEST, Manifest, ShardFile
from subnet.data.tokens import ByteTokenizer, JsonTokenizer
from subnet.data.writer import ShardWriter, write_whole
from subnet.errors import UserError

JOURNAL = "journal.json"
TOKENIZER = "tokenizer.json"
"""The tokenizer's name in a folder of shards, unless it is "bytes"."""
JOURNAL_SECONDS = 10.0
"""Work that a crash may cost."""
_LOCK = ".lock"
_AHEAD = 16  # batches per worker that are read or tokenised before the first of them is written


@dataclass(frozen=True)
class Tally:
    """How far it is."""

    documents: int = 0
    """With text in them."""
    text_bytes: int = 0
    """Of those documents, as UTF-8."""
    tokens: int = 0
    """Begin and end marks included."""
    bytes_read: int = 0
    """Of the source files."""


@dataclass(frozen=True)
class _Journal:
    source: str
    """Hash of what is tokenised by what."""
    position: Position
    tally: Tally
    shards: tuple[ShardFile, ...] = ()
    tokens: int = 0
    """In the file after `shards`."""

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self), indent=1).encode() + b"\n"

    @classmethod
    def from_bytes(cls, raw: bytes) -> _Journal:
        """Raises ValueError, KeyError or TypeError for anything else."""
        table = json.loads(raw)
        shards = tuple(ShardFile(**shard) for shard in table["shards"])
        return cls(table["source"], Position(*table["position"]), Tally(**table["tally"]), shards, table["tokens"])


def tokenize(
    files: Sequence[DataFile],
    column: str,
    tokenizer: Path | None,
    folder: Path,
    workers: int,
    tell: Callable[[Tally], None],
) -> tuple[Manifest, Tally, int]:
    """Write `folder`, or finish it; the manifest, what is in it, and the tokens that earlier runs had done already.

    `tokenizer` is a `tokenizers` file, None for bytes. `tell` is called after every batch.
    Raises UserError for whatever the user can mend; nothing that was done is lost by it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _sole(folder):
            return _tokenize(files, column, tokenizer, folder, workers, tell)
    except OSError as e:
        raise UserError(
            f"cannot write {folder}: {e.strerror or e}; once mended, the same command goes on from here"
        ) from e
    except BrokenProcessPool as e:
        raise UserError(
            "a tokenizing process was killed (out of memory?); the same command goes on from here, perhaps with fewer "
            "--workers"
        ) from e


def _tokenize(
    files: Sequence[DataFile],
    column: str,
    tokenizer: Path | None,
    folder: Path,
    workers: int,
    tell: Callable[[Tally], None],
) -> tuple[Manifest, Tally, int]:
    known = ByteTokenizer() if tokenizer is None else JsonTokenizer(tokenizer)
    journal = _begin(folder, _source(files, column, known.identity))
    if tokenizer is not None and not (folder / TOKENIZER).exists():
        write_whole(folder / TOKENIZER, tokenizer.read_bytes())
    name = "bytes" if tokenizer is None else TOKENIZER
    dtype = "uint16" if known.vocab_size <= 2**16 else "uint32"
    before = journal.tally.tokens
    written = time.monotonic()
    with (
        ShardWriter(folder, DTYPES[dtype], journal.shards, journal.tokens) as writer,
        Encoders.of(workers, name, folder) as encoders,
    ):
        batches = read(files, column, journal.position)
        for batch, tokens in _encoded(batches, encoders, _AHEAD * workers):
            writer.write(np.frombuffer(tokens, DTYPES[dtype]))
            journal = replace(journal, position=batch.after, tally=_counted(journal.tally, batch, writer))
            tell(journal.tally)
            if time.monotonic() - written >= JOURNAL_SECONDS:
                _keep(folder, journal, writer)
                written = time.monotonic()
        _keep(folder, journal, writer)
        if not journal.tally.tokens:
            raise UserError(f"there are only empty documents in the {len(files)} files")
        manifest = Manifest(known.identity, known.vocab_size, dtype, writer.finish())
    write_whole(folder / MANIFEST, manifest.to_bytes())
    return manifest, journal.tally, before


def _source(files: Sequence[DataFile], column: str, tokenizer: str) -> str:
    listing = [[file.place.url, file.size] for file in files]
    return hashlib.blake2b(json.dumps([listing, column, tokenizer]).encode(), digest_size=16).hexdigest()


def _begin(folder: Path, source: str) -> _Journal:
    """The journal of an earlier run, or a new one for an empty folder."""
    path = folder / JOURNAL
    if not path.exists():
        if others := sorted(child.name for child in folder.iterdir() if child.name not in (_LOCK, f".{JOURNAL}.new")):
            raise UserError(f"{folder} holds something else already ({others[0]}); choose another --out")
        write_whole(path, _Journal(source, Position(), Tally()).to_bytes())
    try:
        journal = _Journal.from_bytes(path.read_bytes())
    except (ValueError, KeyError, TypeError) as e:
        raise UserError(f"{path} is damaged; delete {folder} and start again") from e
    if journal.source != source:
        raise UserError(
            f"{folder} holds the shards of other files, another column or another tokenizer (or the files have "
            "changed since); choose another --out, or delete it"
        )
    return journal


def _keep(folder: Path, journal: _Journal, writer: ShardWriter) -> None:
    shards, tokens = writer.sync()
    write_whole(folder / JOURNAL, replace(journal, shards=shards, tokens=tokens).to_bytes())


def _counted(tally: Tally, batch: Batch, writer: ShardWriter) -> Tally:
    return Tally(
        tally.documents + len(batch.texts),
        tally.text_bytes + sum(map(len, batch.texts)),
        sum(shard.tokens for shard in writer.shards) + writer.tokens,
        batch.bytes_read,
    )


@contextlib.contextmanager
def _sole(folder: Path) -> Iterator[None]:
    """Hold the folder; the system lets go when this process dies."""
    with (folder / _LOCK).open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as e:
            raise UserError(f"another sn38 tokenize is writing {folder}; wait for it, or choose another --out") from e
        yield


def _encoded(batches: Iterator[Batch], encoders: Encoders, ahead: int) -> Iterator[tuple[Batch, bytes]]:
    """Each batch with its tokens, in order; at most `ahead` batches are in memory."""
    waiting: deque[tuple[Batch, Future[bytes]]] = deque()
    for batch in batches:
        waiting.append((batch, encoders.encode(batch.texts)))
        if len(waiting) == ahead:
            done, tokens = waiting.popleft()
            yield done, tokens.result()
    for done, tokens in waiting:
        yield done, tokens.result()

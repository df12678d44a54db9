"""A stream of tokens into shard files, cut at a fixed length and hashed on the way; it can be taken up after a crash.

Knows no text and writes no manifest. The files' bytes depend on the stream alone, not on where it was interrupted.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from subnet.data.shards import ShardFile, check_size
from subnet.errors import UserError

SHARD_TOKENS = 2**27
"""Tokens per shard file; the last one has fewer."""
_READ = 2**22


def write_whole(path: Path, content: bytes) -> None:
    """Put `content` in the place of `path` on the disk: a crash leaves the old file or the new one. Raises OSError."""
    aside = path.with_name(f".{path.name}.new")
    with aside.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    aside.rename(path)


class ShardWriter:
    """Files `tokens-00000.bin`, ... in an existing folder. Used as a context; leaving it closes the open file."""

    def __init__(self, folder: Path, dtype: np.dtype, done: Sequence[ShardFile] = (), tokens: int = 0) -> None:
        """Go on after the files `done` and `tokens` of the next one, as `sync` told them; what came later is dropped.

        Raises OSError from the disk, UserError when a file is not what `sync` left.
        """
        self.shards = list(done)
        """Finished files."""
        self.tokens = 0
        """Tokens in the open file."""
        self._folder, self._dtype = folder, dtype
        for shard in self.shards:
            check_size(folder / shard.file, shard.tokens * dtype.itemsize)
        if tokens:
            self._take_up(tokens)
        else:
            self._open()

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def write(self, tokens: np.ndarray) -> None:
        """Append a vector of integers. Raises OSError from the disk."""
        while len(tokens):
            if self.tokens == SHARD_TOKENS:
                self._finish()
                self._open()
            head, tokens = tokens[: SHARD_TOKENS - self.tokens], tokens[SHARD_TOKENS - self.tokens :]
            raw = head.astype(self._dtype, copy=False).tobytes()
            self._stream.write(raw)
            self._digest.update(raw)
            self.tokens += len(head)

    def sync(self) -> tuple[tuple[ShardFile, ...], int]:
        """The finished files, and the tokens in the open one: all of it is on the disk when this returns."""
        self._stream.flush()
        os.fsync(self._stream.fileno())
        return tuple(self.shards), self.tokens

    def finish(self) -> tuple[ShardFile, ...]:
        """Close the open file and tell all of them."""
        self._finish()
        return tuple(self.shards)

    def _name(self) -> str:
        return f"tokens-{len(self.shards):05d}.bin"

    def _open(self) -> None:
        self._stream: BinaryIO = (self._folder / self._name()).open("wb", buffering=2**20)
        self._digest = hashlib.blake2b(digest_size=32)
        self.tokens = 0

    def _take_up(self, tokens: int) -> None:
        path = self._folder / self._name()
        left = tokens * self._dtype.itemsize
        self._stream = path.open("r+b", buffering=2**20)
        self._digest = hashlib.blake2b(digest_size=32)
        while left and (piece := self._stream.read(min(left, _READ))):
            self._digest.update(piece)
            left -= len(piece)
        if left:
            self._stream.close()
            raise UserError(f"{path} is shorter than it was; delete {self._folder} and start again")
        self._stream.truncate(self._stream.tell())
        self.tokens = tokens

    def _finish(self) -> None:
        with self._stream:  # closed also when the disk is full
            self._stream.flush()
            os.fsync(self._stream.fileno())
        self.shards.append(ShardFile(self._name(), self.tokens, self._digest.hexdigest()))

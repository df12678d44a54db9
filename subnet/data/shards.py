"""Memory-mapped token shards: their manifest, its hash, and reading samples from them.

Not the building (`subnet.data.prepare`). A folder holds manifest.json and flat little-endian token files; the run
agrees on the hash of the manifest, which holds the hash of every file, and thereby on every token.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from subnet.errors import UserError

if TYPE_CHECKING:  # torch takes a second to import, which building shards need not pay
    import torch

MANIFEST = "manifest.json"
MAX_MANIFEST_BYTES = 2**24
DTYPES: dict[str, np.dtype] = {"uint16": np.dtype("<u2"), "uint32": np.dtype("<u4")}

_DOMAIN = b"sn38/manifest/1\n"
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}\.bin")
_HASH = re.compile(r"[0-9a-f]{64}")
_READ = 2**22


@dataclass(frozen=True)
class ShardFile:
    """One flat file of tokens."""

    file: str
    """Name within the folder."""
    tokens: int
    """Number of tokens; the file has that many times the width of the dtype."""
    hash: str
    """blake2b-256 of the file, hex."""


@dataclass(frozen=True)
class Manifest:
    """What a folder of shards contains, in canonical form."""

    tokenizer: str
    """Identity of the tokenizer: "bytes" or the hash of its file."""
    vocab_size: int
    """Ids are below it."""
    dtype: str
    """"uint16" or "uint32", little-endian."""
    shards: tuple[ShardFile, ...]

    def to_bytes(self) -> bytes:
        """The content of manifest.json: JSON with sorted keys and no spaces."""
        table = {
            "dtype": self.dtype,
            "format": 1,
            "shards": [{"file": s.file, "hash": s.hash, "tokens": s.tokens} for s in self.shards],
            "tokenizer": self.tokenizer,
            "vocab_size": self.vocab_size,
        }
        return json.dumps(table, sort_keys=True, separators=(",", ":")).encode() + b"\n"

    @classmethod
    def from_bytes(cls, raw: bytes) -> Manifest:
        """Inverse of `to_bytes`. Raises ValueError, with the reason, for anything that is not exactly a manifest."""
        try:
            table = json.loads(raw)
        except (ValueError, RecursionError) as e:
            raise ValueError("not JSON") from e
        try:
            shards = tuple(ShardFile(s["file"], s["tokens"], s["hash"]) for s in table["shards"])
            manifest = cls(table["tokenizer"], table["vocab_size"], table["dtype"], shards)
        except (KeyError, TypeError, IndexError) as e:
            raise ValueError("a field is missing") from e
        manifest._check()
        if manifest.to_bytes() != raw:
            raise ValueError("not in canonical form")
        return manifest

    def _check(self) -> None:
        if not isinstance(self.tokenizer, str) or not (self.tokenizer == "bytes" or _HASH.fullmatch(self.tokenizer)):
            raise ValueError("bad tokenizer")
        if not isinstance(self.dtype, str) or self.dtype not in DTYPES:
            raise ValueError("bad dtype")
        if type(self.vocab_size) is not int or not 0 < self.vocab_size <= 2 ** (8 * DTYPES[self.dtype].itemsize):
            raise ValueError("bad vocab_size")
        for s in self.shards:
            if not isinstance(s.file, str) or not _FILE_NAME.fullmatch(s.file):
                raise ValueError("bad file name")
            if type(s.tokens) is not int or not 0 < s.tokens < 2**40:
                raise ValueError(f"bad token count of {s.file}")
            if not isinstance(s.hash, str) or not _HASH.fullmatch(s.hash):
                raise ValueError(f"bad hash of {s.file}")
        if not self.shards or len({s.file for s in self.shards}) != len(self.shards):
            raise ValueError("no shards, or one named twice")

    def hash(self) -> str:
        """Hex blake2b-256 that the run agrees on."""
        return hashlib.blake2b(_DOMAIN + self.to_bytes(), digest_size=32).hexdigest()


class Shards:
    """Samples of `seq_len` tokens each, one in `round(1 / held_out)` of them set apart and never trained on.

    Samples do not overlap; labels are the inputs shifted inside a sample. Nothing is read before it is asked for.
    """

    def __init__(self, folder: Path, seq_len: int, held_out: float) -> None:
        """Raises UserError when the folder is no folder of shards or a file has the wrong size."""
        self.folder = folder
        self.seq_len = seq_len
        self.manifest = _read_manifest(folder)
        self.manifest_hash = self.manifest.hash()
        self._dtype = DTYPES[self.manifest.dtype]
        for shard in self.manifest.shards:
            check_size(folder / shard.file, shard.tokens * self._dtype.itemsize)
        self._starts = np.cumsum([0] + [s.tokens // seq_len for s in self.manifest.shards])
        self._period = max(2, round(1 / held_out))
        self._maps: dict[int, np.ndarray] = {}

    @property
    def num_samples(self) -> int:
        """All samples, both kinds."""
        return int(self._starts[-1])

    @property
    def num_held_out(self) -> int:
        """Samples never trained on."""
        return self.num_samples // self._period

    @property
    def num_train(self) -> int:
        """Samples to train on."""
        return self.num_samples - self.num_held_out

    @property
    def vocab_size(self) -> int:
        """Token ids are below it; the model's vocabulary must be at least as large."""
        return self.manifest.vocab_size

    def train(self, ids: np.ndarray) -> torch.Tensor:
        """int64 [len(ids), seq_len]: training samples by index below `num_train`."""
        return self._samples(_checked(ids, self.num_train), held_out=False)

    def held_out(self, ids: np.ndarray) -> torch.Tensor:
        """int64 [len(ids), seq_len]: held-out samples by index below `num_held_out`."""
        return self._samples(_checked(ids, self.num_held_out), held_out=True)

    def verify(self) -> None:
        """Hash every file; takes seconds per GB. Raises UserError naming the first that is damaged."""
        for shard in self.manifest.shards:
            if hash_file(self.folder / shard.file) != shard.hash:
                raise UserError(f"{self.folder / shard.file} is damaged; delete {self.folder} and start again")

    def _samples(self, ids: np.ndarray, held_out: bool) -> torch.Tensor:
        import torch

        # the last of every `period` samples is held out; an unfinished last period is for training
        samples = ids * self._period + self._period - 1 if held_out else ids + ids // (self._period - 1)
        shards = np.searchsorted(self._starts, samples, side="right") - 1
        out = np.empty((len(samples), self.seq_len), dtype=np.int64)
        for row, (sample, shard) in enumerate(zip(samples, shards, strict=True)):
            start = int(sample - self._starts[shard]) * self.seq_len
            out[row] = self._map(int(shard))[start : start + self.seq_len]
        if out.size and int(out.max()) >= self.vocab_size:
            raise UserError(f"a shard in {self.folder} is damaged; delete the folder and start again")
        return torch.from_numpy(out)

    def _map(self, index: int) -> np.ndarray:
        if index not in self._maps:
            self._maps[index] = np.memmap(self.folder / self.manifest.shards[index].file, self._dtype, mode="r")
        return self._maps[index]


def hash_file(path: Path) -> str:
    """Hex blake2b-256 of a file."""
    digest = hashlib.blake2b(digest_size=32)
    with path.open("rb") as stream:
        while piece := stream.read(_READ):
            digest.update(piece)
    return digest.hexdigest()


def check_size(path: Path, size: int) -> None:
    """Raises UserError unless the shard `path` has `size` bytes."""
    try:
        actual = path.stat().st_size
    except OSError as e:
        raise UserError(f"the token shard {path} cannot be read: {e.strerror}") from e
    if actual != size:
        raise UserError(f"the token shard {path} has {actual} bytes instead of {size}; fetch or build it again")


def _checked(ids: np.ndarray, size: int) -> np.ndarray:
    ids = np.asarray(ids, dtype=np.int64)
    if ids.ndim != 1 or (ids.size and (ids.min() < 0 or ids.max() >= size)):
        raise ValueError(f"sample ids must be a vector of indices below {size}")
    return ids


def _read_manifest(folder: Path) -> Manifest:
    path = folder / MANIFEST
    try:
        with path.open("rb") as stream:
            raw = stream.read(MAX_MANIFEST_BYTES + 1)
    except OSError as e:
        raise UserError(f"no token shards in {folder}: cannot read {MANIFEST}: {e.strerror}") from e
    if len(raw) > MAX_MANIFEST_BYTES:
        raise UserError(f"{path} is larger than {MAX_MANIFEST_BYTES} bytes; this is not a manifest of token shards")
    try:
        return Manifest.from_bytes(raw)
    except ValueError as e:
        raise UserError(f"{path} is not a manifest of token shards: {e}") from e

"""From a data configuration to token shards: found in the cache, or built there once, whole or not at all.

Not a service: processes that start together on one machine agree through a lock file, and a crash at any point leaves
nothing that a later start could mistake for finished shards (built aside, renamed when complete).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from subnet.config import DataConfig
from subnet.data.corpus import Corpus, folder_corpus, stdlib_corpus
from subnet.data.shards import DTYPES, MANIFEST, Manifest, Shards
from subnet.data.tokens import ByteTokenizer, JsonTokenizer, load_tokenizer
from subnet.data.writer import ShardWriter, write_whole
from subnet.errors import UserError

Progress = Callable[[int, int], None]
"""Called now and then with (bytes read, bytes in all)."""

MIN_SAMPLES = 1024
"""Fewer samples are no corpus: every one of 256 uids needs its share, and so does the held-out split."""
LOCK_DEADLINE_S = 900.0
"""Longest wait for another process that builds the same shards."""
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_VERIFY_BYTES = 2**26  # shards up to this size are hashed at every start; larger ones by `sn38 doctor`


def prepare(data: DataConfig, cache_dir: Path, seq_len: int, progress: Progress | None = None) -> Shards:
    """The shards of `data`, built below `cache_dir` at first use. Safe when many processes call it at once.

    Raises UserError when the source is missing, unreadable, damaged or too small, or when the disk is full.
    """
    path = Path(data.path).expanduser() if data.path else None
    if data.source == "shards":
        if path is None:
            raise UserError("data.source is shards, but no folder is set; set data.path or --data.path")
        folder = path
    else:
        if data.source == "folder" and path is None:
            raise UserError("data.source is folder, but no folder is set; set data.path or --data.path")
        corpus = folder_corpus(path) if data.source == "folder" and path is not None else stdlib_corpus()
        folder = _cached(corpus, load_tokenizer(data.tokenizer, path), cache_dir, progress)
    shards = Shards(folder, seq_len, data.held_out)
    if shards.num_samples < MIN_SAMPLES or shards.num_held_out < 1:
        raise UserError(
            f"the data has {shards.num_samples} samples of {seq_len} tokens; at least {MIN_SAMPLES} are needed "
            f"({MIN_SAMPLES * seq_len:,} tokens)"
        )
    if sum(shard.tokens for shard in shards.manifest.shards) * DTYPES[shards.manifest.dtype].itemsize <= _VERIFY_BYTES:
        shards.verify()
    return shards


def build_shards(
    corpus: Corpus, tokenizer: ByteTokenizer | JsonTokenizer, folder: Path, progress: Progress | None = None
) -> Manifest:
    """Tokenise `corpus` into files and a manifest in the existing, empty `folder`; the same input gives the same bytes.

    Each document is framed by the tokenizer's begin (if any) and end tokens. Raises OSError from the disk.
    """
    dtype = "uint16" if tokenizer.vocab_size <= 2**16 else "uint32"
    total, done = corpus.num_bytes, 0
    with ShardWriter(folder, DTYPES[dtype]) as writer:
        for document in corpus.documents():
            writer.write(tokenizer.frame([document]))
            done += len(document)
            if progress is not None:
                progress(done, total)
        if not done:
            raise UserError(f"there is nothing but empty files in {corpus.title}")
        manifest = Manifest(tokenizer.identity, tokenizer.vocab_size, dtype, writer.finish())
    write_whole(folder / MANIFEST, manifest.to_bytes())
    return manifest


def _cached(
    corpus: Corpus, tokenizer: ByteTokenizer | JsonTokenizer, cache_dir: Path, progress: Progress | None
) -> Path:
    """The folder of the built shards; its name is a fingerprint of what it was built from on this machine."""
    try:
        key = hashlib.blake2b(f"{corpus.fingerprint()} {tokenizer.identity}".encode(), digest_size=8).hexdigest()
        folder = cache_dir / f"shards-{key}"
        if not (folder / MANIFEST).is_file():
            cache_dir.mkdir(parents=True, exist_ok=True)
            with _locked(cache_dir / f".{folder.name}.lock"):
                if not (folder / MANIFEST).is_file():
                    _build_aside(corpus, tokenizer, folder, progress)
    except OSError as e:
        remedy = "; free some space or choose another --home" if e.errno in _FULL else ""
        raise UserError(f"cannot build the token shards of {corpus.title} in {cache_dir}: {e.strerror}{remedy}") from e
    return folder


def _build_aside(
    corpus: Corpus, tokenizer: ByteTokenizer | JsonTokenizer, folder: Path, progress: Progress | None
) -> None:
    """Build in a temporary folder and rename it; called with the lock held, so leftovers are a dead process's."""
    prefix = f".{folder.name}.building-"
    for leftover in folder.parent.glob(f"{prefix}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)  # no manifest: not ours, or damaged by hand
    staging = Path(tempfile.mkdtemp(prefix=prefix, dir=folder.parent))
    try:
        build_shards(corpus, tokenizer, staging, progress)
        staging.rename(folder)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an advisory lock, which the system releases when this process dies. Raises UserError after the deadline."""
    deadline = time.monotonic() + LOCK_DEADLINE_S
    with path.open("w") as stream:
        while True:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as e:
                if time.monotonic() > deadline:
                    raise UserError(
                        f"another process has held {path} for {LOCK_DEADLINE_S:.0f} s; if none is building, delete it"
                    ) from e
                time.sleep(0.05)
        yield

"""Processes that turn documents into tokens, one per core.

Processes and not the tokenizer's own threads: every id passes through Python, which runs in one thread at a time.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path

from subnet.data.tokens import ByteTokenizer, JsonTokenizer, load_tokenizer

_tokenizer: ByteTokenizer | JsonTokenizer  # of a worker


class Encoders:
    """Workers that hold a tokenizer. Their death is `BrokenProcessPool` for whoever waits for a result."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool

    @classmethod
    @contextlib.contextmanager
    def of(cls, workers: int, name: str, folder: Path) -> Iterator[Encoders]:
        """`workers` of them, with the tokenizer that `load_tokenizer(name, folder)` is; they end with the context."""
        # a fork of a process that has threads may hang
        context = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(workers, context, _set_up, (name, folder))
        try:
            yield cls(pool)
        finally:
            pool.shutdown(cancel_futures=True)

    def encode(self, texts: list[bytes]) -> Future[bytes]:
        """The framed tokens of the documents (`frame`), as bytes of the tokenizer's dtype."""
        return self._pool.submit(_encode, texts)


def _set_up(name: str, folder: Path) -> None:
    global _tokenizer
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one core is this worker's
    threading.Thread(target=_die_with_parent, daemon=True).start()
    _tokenizer = load_tokenizer(name, folder)


def _die_with_parent() -> None:
    """A worker whose parent was killed would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _encode(texts: list[bytes]) -> bytes:
    return _tokenizer.frame(texts).tobytes() if texts else b""

"""Where data is: a local path, an http(s) URL, `hf://datasets/REPO/...` on the Hugging Face Hub, or `s3://BUCKET/...`.

All of it is fsspec; this module only chooses its options, names the failures that pass with time, and turns the others
into one line.
"""

from __future__ import annotations

import asyncio
import io
import logging
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import aiohttp
import httpx

from subnet.errors import UserError

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem
    from fsspec.spec import AbstractBufferedFile

PASSING = (OSError, asyncio.TimeoutError, aiohttp.ClientError, httpx.HTTPError)
"""What a remote place raises when it fails; it may be well again a moment later, or another may have the same."""
TRIES = 8
"""Reads of a far file that may fail one after the other."""
CONNECT_SECONDS, SILENCE_SECONDS = 20.0, 60.0
"""Longest wait for a connection, and for the next byte."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Place:
    """A file or folder, and the file system it lies in."""

    url: str
    """What messages call it."""
    fs: AbstractFileSystem
    path: str
    """Within `fs`."""

    @classmethod
    def of(cls, url: str) -> Place:
        """The place that a user named. Raises UserError for one that needs a package which is not installed."""
        from fsspec.core import split_protocol, url_to_fs

        protocol, _ = split_protocol(url)
        options: dict[str, Any] = {}
        if protocol in ("http", "https"):
            wait = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=SILENCE_SECONDS)
            # every file is listed and read at most a few times: a cached listing would only hide that it changed
            options = {"client_kwargs": {"timeout": wait}, "use_listings_cache": False}
        try:
            fs, path = url_to_fs(url, **options)
        except ImportError as e:
            raise UserError(f"{url} cannot be read: {e}; install what it names (S3: pip install s3fs)") from e
        except ValueError as e:
            raise UserError(f"{url} cannot be read: {e}") from e
        return cls(url, fs, path)

    @property
    def local(self) -> bool:
        """Whether it is on this machine: what fails there fails for good."""
        return is_local(self.fs)

    def child(self, name: str) -> Place:
        """A file of this folder."""
        return Place(f"{self.url.rstrip('/')}/{name}", self.fs, f"{self.path.rstrip('/')}/{name}")

    def open(self, ahead: int) -> io.RawIOBase:
        """The file, to be read and sought in; of a far one `ahead` bytes more than asked for are fetched.

        Raises one of `PASSING`: here at once, far away after `TRIES` failures in a row, each told in the log.
        """
        return cast(io.RawIOBase, Path(self.path).open("rb")) if self.local else _Far(self, ahead)


def is_local(fs: AbstractFileSystem) -> bool:
    """Whether a file system is this machine's own."""
    return "file" in ((fs.protocol,) if isinstance(fs.protocol, str) else fs.protocol)


def why(error: BaseException) -> str:
    """A failure in a few words, on one line."""
    text = getattr(error, "strerror", None) or str(error)
    return " ".join(str(text).split())[:200] or type(error).__name__


def pauses() -> Iterator[float]:
    """Seconds to wait before each new try: doubling, and spread so that many readers do not come back at once."""
    pause = _FIRST_PAUSE
    while True:
        yield pause * random.uniform(0.5, 1.0)
        pause = min(2 * pause, _LONGEST_PAUSE)


class _Far(io.RawIOBase):
    """A far file whose failing reads are done again."""

    def __init__(self, place: Place, ahead: int) -> None:
        self._place, self._ahead = place, ahead
        self._at = 0
        self._stream: AbstractBufferedFile | None = None
        self._size = int(self._steadily(lambda stream: stream.size))

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        length = min(len(buffer), max(0, self._size - self._at))
        piece = self._steadily(lambda stream: (stream.seek(self._at), stream.read(length))[1]) if length else b""
        buffer[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
        super().close()

    def _steadily(self, act: Callable[[AbstractBufferedFile], Any]) -> Any:
        for tries, pause in enumerate(pauses(), 1):
            try:
                if self._stream is None:
                    self._stream = self._place.fs.open(self._place.path, "rb", block_size=self._ahead)
                return act(self._stream)
            except PASSING as e:
                self._stream = None
                if tries == TRIES:
                    raise
                log.warning("%s: %s; once more in %.0f s (%d of %d)", self._place.url, why(e), pause, tries, TRIES)
                time.sleep(pause)

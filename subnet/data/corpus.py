"""Documents to train on: the Python standard library's own sources, or a folder of text files.

Not a downloader: everything is on this machine already. Documents come in one fixed order, and only what is the same
on every machine with the same Python (or the same folder) is read.
"""

from __future__ import annotations

import hashlib
import json
import os
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from subnet.errors import UserError

STDLIB_BYTES = 12_000_000
"""Most bytes taken of the standard library."""
DOCUMENT_BYTES = 2**24
"""Most bytes of one document; longer files are cut at a line end."""
TEXT_SUFFIXES = frozenset({".txt", ".md", ".rst", ".py", ".jsonl"})
"""Files of a folder that are read; each line of a .jsonl file holds a document under "text"."""

# Packaged apart from Python by some distributions, or different from machine to machine.
_STDLIB_SKIPPED = frozenset(
    {
        "__phello__",
        "__pycache__",
        "dist-packages",
        "distutils",
        "ensurepip",
        "idlelib",
        "lib2to3",
        "pydoc_data",
        "site-packages",
        "sitecustomize.py",
        "test",
        "tests",
        "tkinter",
        "turtledemo",
        "venv",
    }
)
_STDLIB_SKIPPED_PREFIXES = ("_sysconfigdata", "config-", "lib-dynload")


@dataclass(frozen=True)
class Corpus:
    """Files of text in their order."""

    title: str
    """What messages call it."""
    root: Path
    files: tuple[str, ...]
    """POSIX paths below root, sorted."""
    limit: int | None
    """Most bytes to read; None for all."""

    @property
    def num_bytes(self) -> int:
        """Bytes that will be read, at most."""
        total = sum((self.root / name).stat().st_size for name in self.files)
        return total if self.limit is None else min(total, self.limit)

    def fingerprint(self) -> str:
        """Names this machine's copy by path, size and time of every file: a cache key, not the manifest hash."""
        stats = [(name, (self.root / name).stat()) for name in self.files]
        listing = [[name, stat.st_size, stat.st_mtime_ns] for name, stat in stats]
        text = json.dumps([str(self.root), self.limit, listing])
        return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()

    def documents(self) -> Iterator[bytes]:
        """Documents in order, line ends as "\\n". Raises UserError when a file cannot be read."""
        left = self.limit
        for name in self.files:
            path = self.root / name
            try:
                with path.open("rb") as stream:
                    for document in json_lines(stream, str(path)) if path.suffix == ".jsonl" else pieces(stream):
                        document = document.replace(b"\r\n", b"\n")
                        if left is not None:
                            document = document[:left]
                            left -= len(document)
                        if document:
                            yield document
            except OSError as e:
                raise UserError(f"cannot read {path}: {e.strerror}") from e
            if left == 0:
                return


def stdlib_corpus() -> Corpus:
    """The running Python's standard library, about 10 MB of source text. Raises UserError if it is not on disk."""
    root = Path(sysconfig.get_path("stdlib")).resolve()
    files = tuple(sorted(_walk(root, frozenset({".py"}), skip_stdlib=True)))
    if not files:
        raise UserError(
            f"the standard library's sources are not in {root} (a zipped Python?); use data.source = folder"
        )
    return Corpus("the Python standard library", root, files, STDLIB_BYTES)


def folder_corpus(path: Path) -> Corpus:
    """The text files below `path`. Raises UserError if there are none."""
    if not path.is_dir():
        raise UserError(
            f"the data folder {path} does not exist; set data.path or --data.path to a folder of text files"
        )
    root = path.resolve()
    files = tuple(sorted(_walk(root, TEXT_SUFFIXES, skip_stdlib=False)))
    if not files:
        raise UserError(f"no text in {path}: no file ends in {', '.join(sorted(TEXT_SUFFIXES))}")
    return Corpus(f"the text in {path}", root, files, None)


def pieces(stream: BinaryIO) -> Iterator[bytes]:
    """A text file whole, or cut at line ends into documents of about `DOCUMENT_BYTES`. Raises OSError."""
    while piece := stream.read(DOCUMENT_BYTES):
        if len(piece) == DOCUMENT_BYTES:
            piece += stream.readline(DOCUMENT_BYTES)
        yield piece


def json_lines(stream: BinaryIO, title: str, column: str = "text", limit: int = DOCUMENT_BYTES) -> Iterator[bytes]:
    """The text of each line, empty for an empty line or null; `limit` is of a line's bytes.

    Raises UserError, which calls the file `title`, for a line that is too long or has no text; OSError.
    """
    number = 0
    while line := stream.readline(limit + 1):
        number += 1
        if len(line) > limit:
            raise UserError(f"{title}:{number}: a line is longer than {limit} bytes")
        try:
            text = json.loads(line)[column] if line.strip() else ""
        except (ValueError, RecursionError, KeyError, TypeError, IndexError) as e:
            raise UserError(f'{title}:{number}: not a JSON object with a "{column}"') from e
        if not isinstance(text, str | None):
            raise UserError(f'{title}:{number}: "{column}" is not a string')
        yield (text or "").encode("utf-8", "surrogatepass")


def _walk(root: Path, suffixes: frozenset[str], skip_stdlib: bool) -> Iterator[str]:
    for folder, subfolders, names in os.walk(root, onerror=_unreadable):
        if skip_stdlib:
            subfolders[:] = [name for name in subfolders if not _machine_specific(name)]
            names = [name for name in names if not _machine_specific(name)]
        for name in names:
            path = Path(folder, name)
            # a link may lead to the machine's own configuration (Debian's sitecustomize.py does)
            if path.suffix in suffixes and path.is_file() and not path.is_symlink():
                yield path.relative_to(root).as_posix()


def _unreadable(error: OSError) -> None:
    raise UserError(f"cannot read {error.filename}: {error.strerror}") from error


def _machine_specific(name: str) -> bool:
    return name in _STDLIB_SKIPPED or name.startswith(_STDLIB_SKIPPED_PREFIXES)

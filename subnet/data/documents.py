"""The documents of parquet, JSON lines and text files, here or at any place that fsspec reads, in one fixed order.

Reads only, and keeps nothing in memory but a batch. Files come in the order they were named, a folder's sorted by path,
documents in the order of their file; so a position in all of them is two numbers, from which reading can be taken up.
"""

from __future__ import annotations

import gzip
import io
import lzma
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

from subnet.data.corpus import TEXT_SUFFIXES, json_lines, pieces
from subnet.data.places import PASSING, Place, is_local, why
from subnet.errors import UserError

if TYPE_CHECKING:
    import pyarrow.parquet

BATCH_BYTES = 2**19
"""A batch has this much text, and the rest of its last document."""
LINE_BYTES = 2**28
"""Longest line of a JSON file."""
_AHEAD_BYTES = 2**25  # of a far file: few requests, as it is read from its start to its end
_BUFFER_BYTES = 2**20
_ROWS = 256  # of a parquet file, decoded at a time
_COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zst": "zstd"}
_KINDS = {".parquet": "parquet", ".jsonl": "json", ".json": "json", ".ndjson": "json"}


@dataclass(frozen=True)
class DataFile:
    """A file of documents."""

    place: Place
    size: int
    """Bytes."""
    kind: str
    """"parquet", "json" (a document a line) or "text" (one document, or several where it is very long)."""
    compression: str | None
    """Of the whole file, as fsspec calls it."""


class Position(NamedTuple):
    """So many files, and documents of the next one, have been read."""

    file: int = 0
    document: int = 0


class Batch(NamedTuple):
    """Some documents, one after the other."""

    texts: list[bytes]
    """UTF-8; empty documents are left out."""
    after: Position
    """Where the next batch begins."""
    bytes_read: int
    """Of all files, up to here."""


def find(urls: Sequence[str]) -> tuple[DataFile, ...]:
    """The files that `urls` name: files, folders or patterns with `*`. Raises UserError for one that has none."""
    found: list[DataFile] = []
    for url in urls:
        place = Place.of(url)
        try:
            sizes = _sizes(place)
        except PASSING as e:
            raise UserError(f"cannot read {url}: {why(e)}") from e
        files = [_data_file(place, path, size) for path, size in sorted(sizes.items())]
        known = [file for file in files if file is not None and file.size]
        if not known:
            raise UserError(f"no data in {url}: no file ends in .parquet, .jsonl or .json (or .gz, .zst, ...) or .txt")
        found += known
    return tuple(found)


def read(files: Sequence[DataFile], column: str, start: Position) -> Iterator[Batch]:
    """Batches from `start` on. Raises UserError for a file that lacks the column, is damaged or stays out of reach."""
    before = list(accumulate((file.size for file in files), initial=0))
    for index in range(start.file, len(files)):
        texts: list[bytes] = []
        size, number = 0, start.document if index == start.file else 0
        for text, share in _documents(files[index], column, number):
            number += 1
            if text:
                texts.append(text)
                size += len(text)
            if size >= BATCH_BYTES:
                yield Batch(texts, Position(index, number), before[index] + share)
                texts, size = [], 0
        yield Batch(texts, Position(index + 1), before[index + 1])


def _documents(file: DataFile, column: str, skip: int) -> Iterator[tuple[bytes, int]]:
    """Documents after the first `skip`, each with the bytes of the file read by then."""
    url = file.place.url
    try:
        with file.place.open(_AHEAD_BYTES) as raw:
            yield from _parquet(raw, file, column, skip) if file.kind == "parquet" else _lines(raw, file, column, skip)
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as e:
        raise UserError(f"{url} is damaged: {why(e)}") from e
    except PASSING as e:
        raise UserError(f"cannot read {url}: {why(e)}; run this again to go on from here") from e


def _lines(raw: io.RawIOBase, file: DataFile, column: str, skip: int) -> Iterator[tuple[bytes, int]]:
    stream = io.BufferedReader(_decompressed(raw, file), _BUFFER_BYTES)
    texts = json_lines(stream, file.place.url, column, LINE_BYTES) if file.kind == "json" else pieces(stream)
    for number, text in enumerate(texts):
        if number >= skip:
            yield text, min(raw.tell(), file.size)


def _parquet(raw: io.RawIOBase, file: DataFile, column: str, skip: int) -> Iterator[tuple[bytes, int]]:
    import pyarrow as pa

    table = _open_parquet(raw, file, column)
    sizes = [table.metadata.row_group(group).num_rows for group in range(table.num_row_groups)]
    starts = list(accumulate(sizes, initial=0))
    first = bisect_right(starts, skip) - 1  # the group that holds the first document wanted
    groups, done = range(first, len(sizes)), starts[first]
    total = max(1, table.metadata.num_rows)
    try:
        for batch in table.iter_batches(_ROWS, row_groups=list(groups), columns=[column]) if groups else ():
            # a view of the bytes: decoding them is left to whoever tokenises
            for text in batch.column(0).cast(pa.large_string()).cast(pa.large_binary()).to_pylist():
                done += 1
                if done > skip:
                    yield text or b"", file.size * done // total
    except pa.ArrowException as e:
        raise UserError(f"{file.place.url} is damaged: {why(e)}") from e


def _open_parquet(raw: io.RawIOBase, file: DataFile, column: str) -> pyarrow.parquet.ParquetFile:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.ParquetFile(raw)
    except pa.ArrowException as e:
        raise UserError(f"{file.place.url} is not a parquet file, or is damaged: {why(e)}") from e
    schema = table.schema_arrow
    if column not in schema.names:
        raise UserError(
            f"{file.place.url} has no column {column!r} but {', '.join(schema.names)}; choose one with --column"
        )
    kind = schema.field(column).type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise UserError(f"the column {column!r} of {file.place.url} holds no text but {kind}; choose another: --column")
    return table


def _decompressed(raw: io.RawIOBase, file: DataFile) -> io.RawIOBase:
    from fsspec.compression import compr

    if file.compression is None:
        return raw
    if file.compression not in compr:
        raise UserError(f"{file.place.url} is compressed by {file.compression}: pip install zstandard")
    stream: io.RawIOBase = compr[file.compression](raw, mode="rb")
    return stream


def _sizes(place: Place) -> dict[str, int]:
    """Every file that a place means, by path."""
    if any(mark in place.path for mark in "*?["):
        listed = place.fs.glob(place.path, detail=True)
    else:
        info: dict[str, Any] = place.fs.info(place.path)
        if info["type"] != "directory":
            return {place.path: _size(place, info)}
        listed = place.fs.find(place.path, detail=True)
    return {path: _size(place, info) for path, info in listed.items() if info["type"] != "directory"}


def _size(place: Place, info: dict[str, Any]) -> int:
    if info.get("size") is None:
        raise UserError(f"{place.url} cannot be read: its server does not tell how long it is")
    return int(info["size"])


def _data_file(place: Place, path: str, size: int) -> DataFile | None:
    name, compression = path.partition("?")[0].lower(), None
    for suffix, known in _COMPRESSIONS.items():
        if name.endswith(suffix):
            name, compression = name.removesuffix(suffix), known
    suffix = "." + name.rpartition(".")[2]
    kind = _KINDS.get(suffix) or ("text" if suffix in TEXT_SUFFIXES else None)
    if kind is None or (kind == "parquet" and compression):
        return None
    url = path if is_local(place.fs) else place.fs.unstrip_protocol(path)
    return DataFile(Place(url, place.fs, path), size, kind, compression)

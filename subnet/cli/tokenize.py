"""`sn38 tokenize`: text into the token shards that a run trains on (docs/data.md)."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from subnet.errors import UserError
from subnet.progress import duration, size

if TYPE_CHECKING:
    from subnet.data.tokenize import Tally

PROGRESS_SECONDS = 30.0
"""Between two lines of progress, where there is no terminal to draw on."""


def parser() -> argparse.ArgumentParser:
    """The flags."""
    flags = argparse.ArgumentParser(prog="sn38 tokenize", description=__doc__)
    flags.add_argument(
        "sources", nargs="+", metavar="SOURCE",
        help="files, folders or patterns of parquet, JSON lines (.gz, .zst) or text: paths, https:// or s3:// URLs, "
        "or hf://datasets/REPO/PATH on the Hugging Face Hub",
    )  # fmt: skip
    flags.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="where the shards go")
    flags.add_argument("--tokenizer", required=True, metavar="FILE", help='a tokenizer.json (path or URL), or "bytes"')
    flags.add_argument("--column", default="text", metavar="NAME", help="what holds the text (default: text)")
    cores = len(os.sched_getaffinity(0))
    flags.add_argument("--workers", type=int, default=cores, metavar="N", help=f"processes (default: {cores})")
    return flags


def main(argv: list[str]) -> int:
    """Tokenise, tell the progress, and close with what was made."""
    args = parser().parse_args(argv)
    if args.workers < 1:
        raise UserError(f"--workers must be 1 or more, got {args.workers}")
    from subnet.data.documents import find
    from subnet.data.tokenize import tokenize

    files = find(args.sources)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="sn38-tokenize-") as aside:
        tokenizer = None if args.tokenizer == "bytes" else _fetched(args.tokenizer, Path(aside))
        with _Told(sum(file.size for file in files)) as told:
            manifest, tally, before = tokenize(files, args.column, tokenizer, args.out, args.workers, told)
    seconds = time.monotonic() - began
    resumed = f", {before:,} of them by an earlier run" if before else ""
    speed = (tally.tokens - before) / seconds
    print(
        f"{tally.tokens:,} tokens{resumed} of {tally.documents:,} documents ({size(tally.text_bytes)}) in "
        f"{len(manifest.shards)} shards in {args.out}, {duration(seconds)}, {speed:,.0f} tokens/s; "
        f"manifest {manifest.hash()}"
    )
    return 0


def _fetched(url: str, folder: Path) -> Path:
    """The tokenizer's file on this machine."""
    from subnet.data.places import PASSING, Place, why

    place = Place.of(url)
    if place.local:
        return Path(place.path)
    path = folder / "tokenizer.json"
    try:
        path.write_bytes(place.fs.cat_file(place.path))
    except PASSING as e:
        raise UserError(f"cannot read the tokenizer {url}: {why(e)}") from e
    return path


class _Told:
    """Shows how far it is and how long it will take: one line on a terminal, a new one now and then in a log."""

    def __init__(self, total: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("tokenizing"), BarColumn(), DownloadColumn(), TextColumn("{task.fields[tokens]:,} tokens"),
            TextColumn("{task.fields[speed]:,.0f} tokens/s"), TimeRemainingColumn(),
        )  # fmt: skip
        console = Console(stderr=True)
        self._bars = Progress(*columns, console=console, disable=not console.is_terminal)
        self._lines = None if console.is_terminal else PROGRESS_SECONDS
        self._total = total
        self._task = self._bars.add_task("", total=total, tokens=0, speed=0.0)
        self._began = time.monotonic()
        self._before: int | None = None

    def __enter__(self) -> _Told:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def __call__(self, tally: Tally) -> None:
        if self._before is None:
            self._before = tally.tokens
        speed = (tally.tokens - self._before) / (time.monotonic() - self._began)
        if self._lines is not None and time.monotonic() - self._began >= self._lines:
            self._lines += PROGRESS_SECONDS
            print(
                f"{size(tally.bytes_read)} of {size(self._total)} read, {tally.tokens:,} tokens, {speed:,.0f} tokens/s",
                file=sys.stderr, flush=True,
            )  # fmt: skip
        self._bars.update(self._task, completed=tally.bytes_read, tokens=tally.tokens, speed=speed)

"""Sketches on disk: exact both ways; what is of no use is a fresh start."""

import logging
from pathlib import Path

import msgpack
import numpy as np
import pytest

from subnet.validator import sketchbook
from subnet.validator.sketchbook import Sketchbook

SIZE = 8


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "sketches"
    rows = {f"h{n}": np.random.default_rng(n).normal(size=SIZE).astype(np.float32) for n in range(3)}
    sketchbook.save(path, Sketchbook(b"s" * 32, rows))
    book = sketchbook.load(path, SIZE)
    assert book.secret == b"s" * 32
    assert {h: row.tolist() for h, row in book.sketches.items()} == {h: row.tolist() for h, row in rows.items()}


def test_without_a_file_the_secret_is_new_each_time(tmp_path: Path) -> None:
    one, other = (sketchbook.load(tmp_path / "none", SIZE) for _ in range(2))
    assert len(one.secret) == 32 and one.secret != other.secret and not one.sketches


def packed(**changes: object) -> bytes:
    good = {"version": 1, "secret": b"s" * 32, "sketches": {"h": np.ones(SIZE, np.float32).tobytes()}}
    return bytes(msgpack.packb(good | changes))


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "damaged"),
        (packed()[:-1], "damaged"),
        (b"\x01", "version"),
        (packed(version=2), "version"),
        (packed(secret=b"short"), "damaged"),
        (packed(sketches=[]), "damaged"),
        (packed(sketches={"h": b"123"}), "another model"),
        (packed(sketches={"h": np.full(SIZE, np.nan, np.float32).tobytes()}), "damaged"),
    ],
)
def test_what_is_of_no_use_is_told_and_forgotten(tmp_path: Path, caplog, raw: bytes, why: str) -> None:
    path = tmp_path / "sketches"
    path.write_bytes(packed())
    assert sketchbook.load(path, SIZE).sketches
    path.write_bytes(raw)
    with caplog.at_level(logging.WARNING):
        book = sketchbook.load(path, SIZE)
    assert not book.sketches and book.secret != b"s" * 32
    assert why in caplog.text

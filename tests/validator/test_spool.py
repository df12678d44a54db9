"""Contributions kept on disk for a second look."""

from pathlib import Path

from subnet.validator.spool import Spool


def test_what_was_put_comes_back_until_it_is_cleared(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    leaves = [b"", b"one", bytes(100_000)]
    spool.put("5Abc", leaves)
    assert spool.get("5Abc") == leaves
    assert spool.get("5Def") is None
    spool.put("5Abc", [b"new"])
    assert spool.get("5Abc") == [b"new"]
    spool.clear()
    assert spool.get("5Abc") is None
    spool.clear()


def test_nothing_outlives_the_process(tmp_path: Path) -> None:
    Spool(tmp_path / "spool").put("5Abc", [b"old"])
    assert Spool(tmp_path / "spool").get("5Abc") is None

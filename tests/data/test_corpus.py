"""Corpora: a fixed order, only what is the same everywhere, and one line about what is wrong."""

import sys
from pathlib import Path

import pytest

from subnet.data import corpus
from subnet.data.corpus import folder_corpus, stdlib_corpus
from subnet.errors import UserError


def write(root: Path, files: dict[str, bytes]) -> Path:
    for name, raw in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(raw)
    return root


def test_the_standard_library_without_what_differs_between_machines() -> None:
    library = stdlib_corpus()
    assert list(library.files) == sorted(library.files)
    assert {"argparse.py", "asyncio/base_events.py", "typing.py"} <= set(library.files)
    parts = {part for name in library.files for part in name.split("/")}
    assert not parts & {"site-packages", "test", "tests", "idlelib", "sitecustomize.py"}
    assert not any(part.startswith("_sysconfigdata") for part in parts)
    assert 5_000_000 < library.num_bytes <= corpus.STDLIB_BYTES
    assert sum(map(len, library.documents())) == library.num_bytes or sys.platform == "win32"


def test_folder_order_suffixes_links_and_line_ends(tmp_path: Path) -> None:
    write(tmp_path, {"b.txt": b"b\r\nb", "a/z.md": b"z", "a.txt": b"a", "image.png": b"no", "empty.txt": b""})
    (tmp_path / "link.txt").symlink_to(tmp_path / "b.txt")
    found = folder_corpus(tmp_path)
    assert found.files == ("a.txt", "a/z.md", "b.txt", "empty.txt")
    assert list(found.documents()) == [b"a", b"z", b"b\nb"]


def test_limit_cuts_the_last_document(tmp_path: Path) -> None:
    write(tmp_path, {"a.txt": b"aaa", "b.txt": b"bbb", "c.txt": b"ccc"})
    limited = corpus.Corpus("t", tmp_path, ("a.txt", "b.txt", "c.txt"), 5)
    assert list(limited.documents()) == [b"aaa", b"bb"] and limited.num_bytes == 5


def test_long_files_are_cut_at_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "DOCUMENT_BYTES", 10)
    write(tmp_path, {"a.txt": b"12345678\nabcdef\nxyz"})
    documents = list(folder_corpus(tmp_path).documents())
    assert b"".join(documents) == b"12345678\nabcdef\nxyz" and documents[0] == b"12345678\nabcdef\n"


def test_json_lines(tmp_path: Path) -> None:
    write(tmp_path, {"a.jsonl": b'{"text": "one", "id": 1}\n\n{"text": "tw\\u00f6"}\n'})
    assert list(folder_corpus(tmp_path).documents()) == [b"one", "twö".encode()]


@pytest.mark.parametrize(
    "line", [b"nonsense", b"[1]", b'"x"', b'{"txt": ""}', b'{"text": 3}', b"[" * 30_000, b"\xff\xfe"]
)
def test_bad_json_lines_name_the_line(tmp_path: Path, line: bytes) -> None:
    write(tmp_path, {"a.jsonl": b'{"text": "fine"}\n' + line + b"\n"})
    with pytest.raises(UserError, match=r"a\.jsonl:2: "):
        list(folder_corpus(tmp_path).documents())


def test_bad_folders(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"does not exist; set data\.path"):
        folder_corpus(tmp_path / "none")
    with pytest.raises(UserError, match="no file ends in"):
        folder_corpus(tmp_path)


def test_a_file_that_vanishes_is_a_user_error(tmp_path: Path) -> None:
    found = folder_corpus(write(tmp_path, {"a.txt": b"a"}))
    (tmp_path / "a.txt").unlink()
    with pytest.raises(UserError, match=r"cannot read .*a\.txt"):
        list(found.documents())


def test_fingerprint_follows_the_files(tmp_path: Path) -> None:
    before = folder_corpus(write(tmp_path, {"a.txt": b"a"})).fingerprint()
    assert folder_corpus(tmp_path).fingerprint() == before
    assert folder_corpus(write(tmp_path, {"a.txt": b"aa"})).fingerprint() != before

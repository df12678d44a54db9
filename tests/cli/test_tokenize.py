"""`sn38 tokenize` from the shell: shards that a run reads, one closing line, and mistakes in one line."""

from pathlib import Path

import pytest

from subnet.cli.__main__ import main
from subnet.config import DataConfig
from subnet.data.prepare import prepare


def test_text_to_shards_that_a_run_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text").mkdir()
    for name in ("a.txt", "b.txt"):
        (tmp_path / "text" / name).write_text(f"text of {name} " * 2000)
    out = tmp_path / "out"
    flags = ["tokenize", str(tmp_path / "text"), "--out", str(out), "--tokenizer", "bytes", "--workers", "1"]
    assert main(flags) == 0
    shards = prepare(DataConfig(source="shards", path=str(out)), tmp_path, 32)
    told = capsys.readouterr().out
    assert told.startswith(f"56,004 tokens of 2 documents (56.0 kB) in 1 shards in {out}, ")
    assert told.endswith(f" tokens/s; manifest {shards.manifest_hash}\n")
    assert main(flags) == 0  # again: there is nothing left to do
    assert capsys.readouterr().out.startswith("56,004 tokens, 56,004 of them by an earlier run of 2 documents")


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["nowhere", "--tokenizer", "bytes"], "cannot read nowhere: No such file"),
        (["{text}", "--tokenizer", "no.json"], "cannot read the tokenizer"),
        (["{text}", "--tokenizer", "{text}"], "is not a tokenizer"),
        (["{text}", "--tokenizer", "bytes", "--workers", "0"], "--workers must be 1 or more"),
    ],
)
def test_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], told: str) -> None:
    (tmp_path / "a.txt").write_text("text")
    text = str(tmp_path / "a.txt")
    assert main(["tokenize", *(flag.format(text=text) for flag in flags), "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and told in error and error.count("\n") == 1

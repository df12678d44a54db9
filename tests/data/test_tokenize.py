"""Tokenising: every token of every document, and the same bytes however often it is killed."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from subnet.data import documents, tokenize, writer
from subnet.data.documents import find
from subnet.data.shards import Manifest, Shards
from subnet.data.tokenize import JOURNAL, Tally
from subnet.data.tokens import JsonTokenizer
from subnet.errors import UserError

TEXTS = [f"the cat {i} sat on the mat " * (i % 11 + 1) for i in range(300)]


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of two files and a tokenizer that asks for truncation, read in small batches into small shards."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    folder = tmp_path / "source"
    folder.mkdir()
    for name, part in (("a", TEXTS[:100]), ("b", TEXTS[100:])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in part))
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.train_from_iterator(
        TEXTS, trainers.BpeTrainer(vocab_size=300, special_tokens=["<s>", "</s>"], show_progress=False)
    )
    raw.enable_truncation(8)
    raw.enable_padding(length=8)
    raw.save(str(tmp_path / "tokenizer.json"))
    monkeypatch.setattr(documents, "BATCH_BYTES", 1000)
    monkeypatch.setattr(writer, "SHARD_TOKENS", 3000)
    monkeypatch.setattr(tokenize, "JOURNAL_SECONDS", 0.0)
    return folder


def run(source: Path, out: Path, tell=lambda tally: None) -> tuple[Manifest, Tally, int]:
    return tokenize.tokenize(find([str(source)]), "text", source.parent / "tokenizer.json", out, 1, tell)


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_every_token_is_there(source: Path, tmp_path: Path) -> None:
    manifest, tally, before = run(source, tmp_path / "out")
    known = JsonTokenizer(tmp_path / "tokenizer.json")
    expected = np.concatenate([[known.bos, *known.encode(text), known.eos] for text in TEXTS])
    found = np.concatenate([np.fromfile(tmp_path / "out" / s.file, "<u2") for s in manifest.shards])
    assert np.array_equal(found, expected) and len(manifest.shards) == -(-len(expected) // 3000) > 3
    assert tally == Tally(300, sum(map(len, TEXTS)), len(expected), sum(f.stat().st_size for f in source.iterdir()))
    assert before == 0 and manifest.tokenizer == known.identity
    shards = Shards(tmp_path / "out", 16, 0.1)
    shards.verify()
    assert shards.manifest == manifest
    assert (tmp_path / "out" / "tokenizer.json").read_bytes() == (tmp_path / "tokenizer.json").read_bytes()


class Crash(Exception):
    pass


def test_crashes_change_nothing(source: Path, tmp_path: Path) -> None:
    run(source, tmp_path / "whole")
    out, told, runs = tmp_path / "out", [], 0

    def crash(tally: Tally) -> None:
        told.append(tally.tokens)
        if len(told) % 16 == 0:
            raise Crash

    while True:
        runs += 1
        try:
            _, tally, before = run(source, out, crash)
            break
        except Crash:
            # what a death leaves behind, beyond what the journal tells of
            with max(out.glob("tokens-*.bin")).open("ab") as stream:
                stream.write(b"more")
            assert not (out / "manifest.json").exists()
    assert runs > 2 and before > 0 and content(out) == content(tmp_path / "whole")
    _, same, before = run(source, out)  # finished: nothing is done again
    assert before == same.tokens == tally.tokens and content(out) == content(tmp_path / "whole")


def test_killed_processes_change_nothing(source: Path, tmp_path: Path) -> None:
    run(source, tmp_path / "whole")
    script = (
        "import sys; from pathlib import Path\n"
        "from subnet.data import documents, tokenize, writer\n"
        "if __name__ == '__main__':\n"
        "    documents.BATCH_BYTES, writer.SHARD_TOKENS, tokenize.JOURNAL_SECONDS = 1000, 3000, 0.0\n"
        "    source, out = map(Path, sys.argv[1:])\n"
        "    tokenize.tokenize(documents.find([str(source)]), 'text', source.parent / 'tokenizer.json', out, 1,\n"
        "                      lambda tally: print(tally.tokens, flush=True))\n"
    )
    command = [sys.executable, "-c", script, str(source), str(tmp_path / "out")]
    for lines in (1, 20):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
        assert process.stdout is not None
        for _ in range(lines):
            assert process.stdout.readline()
        process.kill()
        # the pipe ends only when the workers, which hold it too, have died with their parent
        process.stdout.read()
        process.wait()
        assert process.returncode == -signal.SIGKILL
    _, _, before = run(source, tmp_path / "out")
    assert before > 0 and content(tmp_path / "out") == content(tmp_path / "whole")


def test_full_disk_and_then_room(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(source, tmp_path / "whole")
    real, left = os.fsync, [6]

    def full(fd: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(28, "No space left on device")
        real(fd)

    monkeypatch.setattr(writer.os, "fsync", full)
    with pytest.raises(UserError, match=r"No space left on device; once mended, the same command goes on from here"):
        run(source, tmp_path / "out")
    monkeypatch.setattr(writer.os, "fsync", real)
    run(source, tmp_path / "out")
    assert content(tmp_path / "out") == content(tmp_path / "whole")


def test_what_a_user_can_get_wrong(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(source, out)
    (source / "c.jsonl").write_text('{"text": "new"}\n')
    with pytest.raises(UserError, match="holds the shards of other files"):
        run(source, out)
    (out / JOURNAL).write_text("{}")
    with pytest.raises(UserError, match="is damaged"):
        run(source, out)
    (out / JOURNAL).unlink()
    with pytest.raises(UserError, match=r"holds something else already \(manifest\.json\); choose another --out"):
        run(source, out)
    with tokenize._sole(out), pytest.raises(UserError, match="another sn38 tokenize is writing"):
        run(source, out)
    for file in source.iterdir():
        file.write_text('{"text": ""}\n')
    with pytest.raises(UserError, match="only empty documents in the 3 files"):
        run(source, tmp_path / "empty")


def test_a_worker_that_is_killed(source: Path, tmp_path: Path) -> None:
    import multiprocessing

    def kill(tally: Tally) -> None:
        for child in multiprocessing.active_children():
            child.kill()
            child.join()

    with pytest.raises(UserError, match="a tokenizing process was killed"):
        run(source, tmp_path / "out", kill)

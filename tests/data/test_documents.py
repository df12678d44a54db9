"""Documents: the same ones in the same order from every kind of file, from any position on, near or far."""

import gzip
import json
import random
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from subnet.data import documents, places
from subnet.data.documents import Position, find, read
from subnet.errors import UserError

TEXTS = [f"document {i} " * (i % 7 + 1) + "é漢\r\n" for i in range(60)]
TEXTS[5] = ""
START = Position()


def write(folder: Path, kind: str) -> Path:
    path = folder / f"data.{kind}"
    lines = "".join(json.dumps({"id": i, "text": text}) + "\n" for i, text in enumerate(TEXTS)).encode()
    if kind == "parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.table({"id": list(range(len(TEXTS))), "text": [text or None for text in TEXTS]})
        pq.write_table(table, path, row_group_size=7)
    else:
        path.write_bytes(gzip.compress(lines) if kind == "jsonl.gz" else lines)
    return path


def texts(files: tuple[documents.DataFile, ...], start: Position = START, column: str = "text") -> list[bytes]:
    return [text for batch in read(files, column, start) for text in batch.texts]


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "jsonl.gz"])
def test_every_document_from_every_position(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "BATCH_BYTES", 150)
    files = find([str(write(tmp_path, kind))])
    expected = [text.encode() for text in TEXTS if text]
    batches = list(read(files, "text", Position()))
    assert len(batches) > 10 and [text for batch in batches for text in batch.texts] == expected
    positions = [batch.bytes_read for batch in batches]
    assert positions == sorted(positions) and positions[-1] == files[0].size
    done = 0
    for batch in batches:
        done += len(batch.texts)
        assert texts(files, batch.after) == expected[done:]


def test_folders_patterns_and_order(tmp_path: Path) -> None:
    for name in ("b/2.txt", "b/1.txt", "a.md", "c.jsonl", "c.png", "empty.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("" if name == "empty.txt" else '{"text": "c"}' if name == "c.jsonl" else name)
    assert texts(find([str(tmp_path)])) == [b"a.md", b"b/1.txt", b"b/2.txt", b"c"]
    assert texts(find([str(tmp_path / "c.jsonl"), f"{tmp_path}/b/*.txt"])) == [b"c", b"b/1.txt", b"b/2.txt"]
    with pytest.raises(UserError, match=r"no data in .*: no file ends in \.parquet"):
        find([str(tmp_path / "c.png")])
    with pytest.raises(UserError, match=r"cannot read .*/nothing"):
        find([str(tmp_path / "nothing")])
    with pytest.raises(UserError, match="none://x cannot be read: Protocol not known"):
        find(["none://x"])


def test_what_a_file_can_lack(tmp_path: Path) -> None:
    parquet = find([str(write(tmp_path, "parquet"))])
    with pytest.raises(UserError, match="has no column 'body' but id, text; choose one with --column"):
        texts(parquet, column="body")
    with pytest.raises(UserError, match=r"the column 'id' of .* holds no text but int64"):
        texts(parquet, column="id")
    with pytest.raises(UserError, match=r'data\.jsonl:1: not a JSON object with a "body"'):
        texts(find([str(write(tmp_path, "jsonl"))]), column="body")
    for kind in ("parquet", "jsonl.gz"):
        path = write(tmp_path, kind)
        path.write_bytes(path.read_bytes()[:-20])
        with pytest.raises(UserError, match="damaged"):
            texts(find([str(path)]))


class Failing(BaseHTTPRequestHandler):
    """Serves ranges of one file; every second request for content fails."""

    content: bytes
    asked = 0

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.content)))
        self.send_header("Accept-Ranges", "bytes")
        self.end_headers()

    def do_GET(self) -> None:
        type(self).asked += 1
        first, last = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").split("-")
        piece = self.content[int(first) : int(last or len(self.content)) + 1]
        if self.asked % 2:
            self.send_error(503)
            return
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {first}-{int(first) + len(piece) - 1}/{len(self.content)}")
        self.send_header("Content-Length", str(len(piece)))
        self.end_headers()
        self.wfile.write(piece)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Failing)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "jsonl.gz"])
def test_a_far_file_that_fails_is_read_all_the_same(
    tmp_path: Path, kind: str, server: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "BATCH_BYTES", 300)
    monkeypatch.setattr(documents, "_AHEAD_BYTES", 1000)
    monkeypatch.setattr(documents, "_BUFFER_BYTES", 500)
    monkeypatch.setattr(places, "_FIRST_PAUSE", 0.0)
    monkeypatch.setattr(sys.modules[__name__], "TEXTS", [random.Random(i).randbytes(40).hex() for i in range(99)])
    Failing.content, Failing.asked = write(tmp_path, kind).read_bytes(), 0
    files = find([f"http://127.0.0.1:{server.server_port}/data.{kind}"])
    assert files[0].size == len(Failing.content)
    assert texts(files) == [text.encode() for text in TEXTS if text]
    assert Failing.asked > 1


def test_a_far_file_that_stays_away(server: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "_FIRST_PAUSE", 0.0)
    Failing.content = b"x"
    files = find([f"http://127.0.0.1:{server.server_port}/a.txt"])
    monkeypatch.setattr(Failing, "do_GET", lambda self: self.send_error(503))
    with pytest.raises(UserError, match=r"cannot read http://.*/a\.txt: 503.*; run this again to go on from here"):
        texts(files)

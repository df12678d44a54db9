"""An embedded chain in a process of its own, which tests may kill and start again on the same port and state."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

START_SECONDS = 30.0


class Node:
    """`python -m subnet.localnet` with 0.1 s blocks and epochs of 20."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"ws://127.0.0.1:{self.port}"
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        flags = ["--port", str(self.port), "--state", str(self._folder), "--block-time", "0.1"]
        flags += ["--tempo", "20", "--weights-rate-limit", "20"]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "subnet.localnet", *flags],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        assert self._process.stdout is not None
        deadline = time.monotonic() + START_SECONDS
        readable, _, _ = select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))
        line = self._process.stdout.readline() if readable else ""
        if "ready" not in line:
            self.kill()
            raise RuntimeError(f"the embedded chain did not start: {line!r}")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(timeout=10)
            self._process = None


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    running = Node(tmp_path_factory.mktemp("localnet"))
    running.start()
    yield running
    running.kill()

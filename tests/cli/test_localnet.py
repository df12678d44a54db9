"""How `sn38 localnet` ends while others are attached to it, and its last words."""

from __future__ import annotations

import asyncio
import base64
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from subnet.localnet import rpc
from subnet.localnet.process import START_SECONDS
from tests.conftest import ROOT

PATIENCE = 5.0
"""Seconds, below the ten that a websocket server gives a client which does not answer its goodbye."""


def test_clients_that_do_not_answer_its_goodbye_do_not_hold_it_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "GOODBYE_SECONDS", 0.05)

    async def act() -> bytes:
        server = rpc.RpcServer({})
        port = await server.start("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        lines = [
            "GET / HTTP/1.1", f"Host: 127.0.0.1:{port}", "Upgrade: websocket", "Connection: Upgrade",
            f"Sec-WebSocket-Key: {base64.b64encode(bytes(16)).decode()}", "Sec-WebSocket-Version: 13", "", "",
        ]  # fmt: skip
        writer.write("\r\n".join(lines).encode())
        assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
        await server.stop()
        try:
            return await asyncio.wait_for(reader.read(), PATIENCE)
        except ConnectionResetError:
            return b""
        finally:
            writer.close()

    assert asyncio.run(act()) in (b"", b"\x88\x02\x03\xe9"), "the goodbye (1001, going away), then the end"


@pytest.mark.parametrize("kept", [True, False])
def test_its_last_line_says_where_the_state_is(tmp_path: Path, kept: bool) -> None:
    state = tmp_path / "state"
    command = [sys.executable, "-m", "subnet.cli", "localnet", "--port", "0"]
    command += ["--state", str(state)] if kept else ["--ephemeral"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None and "localnet ready" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        said, complaints = process.communicate(timeout=START_SECONDS)
    assert process.returncode == 0 and complaints == ""
    last = said.splitlines()[-1]
    assert last.startswith("localnet stopped") and (str(state) if kept else "nothing is kept") in last

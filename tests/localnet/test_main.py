"""The program: how it starts, stops, dies and comes back, and what it says when it cannot."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bittensor as bt
import pytest

from subnet.localnet import Localnet
from subnet.localnet.__main__ import main
from tests.conftest import dev

FAST = 0.05
"""Block time in seconds."""


def rss_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def ask(net: Localnet, question: Callable[[bt.Client], Any]) -> Any:
    async def talk() -> Any:
        async with bt.Client(net.endpoint) as client:
            return await question(client)

    return asyncio.run(asyncio.wait_for(talk(), 30))


def test_it_says_when_it_is_ready_and_stops_when_told(start_localnet: Callable[..., Localnet]) -> None:
    net = start_localnet(block_time=FAST)
    assert ask(net, lambda client: client.constant(("Aura", "SlotDuration"))) == 50
    assert rss_mib(net.pid) < 150
    assert net.stop() == 0
    assert net.log == ""


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_the_first_block_costs_less_than_a_second(start_localnet: Callable[..., Localnet]) -> None:
    """Of processor time, which a busy machine does not stretch; importing torch alone would cost more."""
    net = start_localnet(block_time=60)
    assert cpu_seconds(net.pid) < 1.0
    net.kill()


def test_a_killed_chain_comes_back(start_localnet: Callable[..., Localnet], tmp_path: Path) -> None:
    net = start_localnet(state=tmp_path / "state", block_time=FAST)
    target = dev("phoenix").coldkey_ss58

    async def pay(client: bt.Client) -> Any:
        return await client.execute(bt.Transfer(dest_ss58=target, amount_tao=7), dev("alice"))

    paid = ask(net, pay)
    block, genesis = int(paid.extrinsic_id.split("-")[0]), ask(net, lambda client: client._substrate.block_hash(0))
    net.kill()
    ready = net.start()
    assert genesis in ready and int(ready.rstrip(")\n").split("block ")[1]) >= block
    assert ask(net, lambda client: client.balances.balance(target)).tao == 7
    assert ask(net, lambda client: client._substrate.block_hash(block)) == paid.block_hash
    for _ in range(5):
        net.kill()
        net.start()
    assert ask(net, pay).success and net.stop() == 0


def run(*flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "subnet.localnet", *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


def assert_one_line(done: subprocess.CompletedProcess[str], *words: str) -> None:
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
    for word in words:
        assert word in done.stderr


def test_a_port_in_use_is_said_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert_one_line(run("--ephemeral", "--port", str(port)), f"port {port} is in use", "--port")


def test_a_state_in_use_is_said_in_one_line(start_localnet: Callable[..., Localnet], tmp_path: Path) -> None:
    net = start_localnet(state=tmp_path / "state")
    assert_one_line(run("--port", "0", "--state", str(tmp_path / "state")), "in use by another localnet", "--state")
    net.kill()


def test_a_foreign_folder_is_said_in_one_line_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    assert_one_line(run("--port", "0", "--state", str(tmp_path)), "holds no localnet chain", "--state")
    assert os.listdir(tmp_path) == ["photos"]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--block-time", "0"], "--block-time must be between"),
        (["--tempo", "0"], "--tempo must be between"),
        (["--weights-rate-limit", "-1"], "--weights-rate-limit must"),
        (["--port", "99999"], "--port must be"),
        (["--ephemeral", "--state", "x"], "give one of them"),
        (["--beacon", "file:///etc/passwd"], "--beacon must be an http:// or https:// URL"),
    ],
)
def test_flags_that_make_no_sense_are_said(flags: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(flags) == 2
    assert said in capsys.readouterr().err


def test_a_host_that_is_not_ours_is_said() -> None:
    assert_one_line(run("--ephemeral", "--port", "0", "--host", "203.0.113.1"), "cannot listen on 203.0.113.1")


def test_it_is_a_program_of_its_own() -> None:
    """Nothing of the rest of the project, of torch or of the SDK is loaded with it: only the SDK's codec."""
    program = "import subnet.localnet.__main__, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    modules = set(loaded.stdout.split())
    others = {name for name in modules if name.startswith("subnet.") and not name.startswith("subnet.localnet")}
    assert not others and not {"torch", "bittensor", "hivemind"} & modules

"""Peers that are killed: what they leave behind, and how soon they are back."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from subnet.config import NodeConfig, RunConfig
from subnet.diloco.merkle import Tree, hash_leaves
from subnet.errors import UserError
from subnet.swarm.lock import claim_hotkey
from subnet.swarm.network import Swarm
from subnet.swarm.process import HomeClaim, is_running, kill_and_wait

from .conftest import HOTKEYS, KEYS, Row, Rows
from .peer import leaves_of

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 30.0


class Child:
    """A running `peer.py` and what it said of itself."""

    def __init__(self, home: Path, key: int, port: int = 0, bootstrap: tuple[str, ...] = ()) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "swarm.peer", str(home), str(key), str(port), *bootstrap],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"},
        )
        assert self.process.stdout is not None
        said: dict[str, Any] = json.loads(self.process.stdout.readline())
        self.maddrs: list[str] = said["maddrs"]
        self.sockets = Path(said["sockets"])
        self.pids: list[int] = [said["dht"], said["p2pd"]]

    def kill(self) -> None:
        """SIGKILL to the neuron itself only."""
        self.process.kill()
        self.process.wait()


@pytest.fixture
def child_of(tmp_path: Path) -> Iterator[Callable[..., Child]]:
    started: list[Child] = []

    def start(name: str, *args: Any, **kwargs: Any) -> Child:
        started.append(Child(tmp_path / name, *args, **kwargs))
        return started[-1]

    yield start
    for child in started:
        child.kill()


def wait_until(holds: Callable[[], bool], seconds: float = SECONDS) -> None:
    limit = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < limit, "it never came to hold"
        time.sleep(0.02)


def test_killed_restarted_elsewhere_and_found_again(
    tmp_path: Path, child_of: Callable[..., Child], run: RunConfig
) -> None:
    leaves = leaves_of(1)
    root = Tree(hash_leaves(leaves)).root

    async def main() -> None:
        config = NodeConfig(home=tmp_path / "watcher", host="127.0.0.1")
        watcher = await Swarm.start(config, KEYS[0], run, Rows([Row(h) for h in HOTKEYS]), lambda: 100.0)
        try:
            child = await asyncio.to_thread(child_of, "child", 1, 0, tuple(watcher.maddrs))

            async def fetch() -> list[bytes]:
                return await watcher.fetch_leaves([KEYS[1].ss58], root, 6, 0, 6, lambda _: 40_000, SECONDS)

            assert await fetch() == leaves
            before = watcher.peers[KEYS[1].ss58]

            child.kill()
            await asyncio.to_thread(wait_until, lambda: not any(map(is_running, child.pids)), 5.0)
            assert child.sockets.exists()  # nobody was left to remove them

            port = int(child.maddrs[0].split("/")[4])
            other_port = port + 1 if port < 65535 else port - 1
            again = await asyncio.to_thread(child_of, "child", 1, other_port, tuple(watcher.maddrs))
            assert not child.sockets.exists()
            assert not list(Path("/dev/shm").glob(f"torch_{child.process.pid}_*"))
            started = time.monotonic()
            assert await fetch() == leaves
            assert time.monotonic() - started < 10.0
            while watcher.peers[KEYS[1].ss58].maddrs == before.maddrs:
                assert time.monotonic() - started < 10.0
                await asyncio.sleep(0.05)
            assert watcher.peers[KEYS[1].ss58].peer_id == before.peer_id
            assert await fetch() == leaves

            assert again.process.stdin is not None
            again.process.stdin.close()
            assert await asyncio.to_thread(again.process.wait, SECONDS) == 0
            assert not any(map(is_running, again.pids))
            assert not again.sockets.exists()
        finally:
            await watcher.stop()

    asyncio.run(main())


def test_killing_the_dht_process_takes_its_daemon_along(child_of: Callable[..., Child]) -> None:
    child = child_of("solo", 2)
    os.kill(child.pids[0], signal.SIGKILL)
    wait_until(lambda: not any(map(is_running, child.pids)), 5.0)


def test_without_the_kernels_help_a_thread_watches(tmp_path: Path) -> None:
    words = tmp_path / "last words"
    script = (
        "import os, time\n"
        "from pathlib import Path\n"
        "from subnet.swarm.process import watch_parent\n"
        "parent = os.getpid()\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        f"    watch_parent(parent, Path({str(words)!r}).touch)\n"
        "print(pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert is_running(child)
    parent.kill()
    parent.wait()
    wait_until(lambda: not is_running(child), 5.0)
    assert words.exists()


def test_one_process_per_folder_until_it_is_gone(tmp_path: Path) -> None:
    script = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from subnet.swarm.process import HomeClaim\n"
        "claim = HomeClaim(Path(sys.argv[1]))\n"
        "print(claim.sockets, flush=True)\n"
        "time.sleep(60)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert holder.stdout is not None
    sockets = Path(holder.stdout.readline().strip())
    with pytest.raises(UserError, match=r"another neuron uses the state folder .*, for another hotkey, give another"):
        HomeClaim(tmp_path)
    assert sockets.is_dir()
    kill_and_wait(holder.pid)
    holder.wait()
    claim = HomeClaim(tmp_path)
    assert not sockets.exists()
    claim.release()
    assert not claim.sockets.exists()


def test_one_process_per_hotkey_subnet_and_chain_until_it_is_gone(tmp_path: Path) -> None:
    script = (
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "from subnet.swarm.lock import claim_hotkey\n"
        "lock = claim_hotkey(Path(sys.argv[1]), 'hot', 2, bytes(32), Path('elsewhere'))\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    time.sleep(60)\n"  # a child that outlives it does not keep the lock
        "print(child, flush=True)\n"
        "time.sleep(60)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert holder.stdout is not None
    child = int(holder.stdout.readline())
    try:
        says = rf"hot is already running as process {holder.pid} \(state folder elsewhere\); .* stop the other"
        with pytest.raises(UserError, match=says):
            claim_hotkey(tmp_path, "hot", 2, bytes(32), tmp_path)
        for other in (("cold", 2, bytes(32)), ("hot", 3, bytes(32)), ("hot", 2, b"\1" * 32)):
            claim_hotkey(tmp_path, *other, tmp_path).release()
        kill_and_wait(holder.pid)
        holder.wait()
        again = claim_hotkey(tmp_path, "hot", 2, bytes(32), tmp_path)
        again.release()
        again.release()
        claim_hotkey(tmp_path, "hot", 2, bytes(32), tmp_path).release()
    finally:
        kill_and_wait(child)
        kill_and_wait(holder.pid)


def test_a_hotkey_lock_that_cannot_be_kept_is_told(tmp_path: Path) -> None:
    (tmp_path / "running").write_text("")
    with pytest.raises(UserError, match=r"running/.* cannot be written: .*; mend that, or set HOME"):
        claim_hotkey(tmp_path, "hot", 2, bytes(32), tmp_path)


def test_only_our_own_leftovers_are_touched(tmp_path: Path) -> None:
    bystander = subprocess.Popen(["sleep", "60"])
    mine = tmp_path / "precious"
    mine.mkdir()
    try:
        for state in (
            {"pid": bystander.pid, "dht": 0, "p2pd": bystander.pid, "sockets": str(mine)},
            {"pid": 1, "dht": 1, "p2pd": 1, "sockets": str(tmp_path / "sn38-none")},
            {"pid": "x"},
            [],
        ):
            (tmp_path / "home").mkdir(exist_ok=True)
            (tmp_path / "home" / "swarm.json").write_text(json.dumps(state))
            HomeClaim(tmp_path / "home").release()
        (tmp_path / "home" / "swarm.json").write_text("{half")
        HomeClaim(tmp_path / "home").release()
        assert bystander.poll() is None
        assert mine.exists()
    finally:
        bystander.kill()
        bystander.wait()


def test_a_home_that_is_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    with pytest.raises(UserError, match="cannot be used as the state folder"):
        HomeClaim(tmp_path / "home")

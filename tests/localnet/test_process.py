"""The chain as other programs and other subnets' tests use it: started, stopped, and never left behind."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from websockets.sync.client import connect

from subnet.localnet import Localnet
from subnet.localnet.errors import LocalnetError
from tests.conftest import ROOT

PATIENCE = 20.0


def ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_it_runs_inside_with_and_nothing_is_left(tmp_path: Path) -> None:
    with Localnet(block_time=0.05) as chain:
        pid = chain.pid
        with connect(chain.endpoint) as socket:
            socket.send('{"jsonrpc": "2.0", "id": 1, "method": "system_chain"}')
            assert "SN38 localnet" in str(socket.recv(PATIENCE))
    assert ended(pid) and chain.log == ""
    with pytest.raises(OSError):
        connect(chain.endpoint)


def test_two_run_side_by_side() -> None:
    with Localnet() as one, Localnet() as other:
        assert one.endpoint != other.endpoint


def test_an_error_in_the_with_passes_and_ends_it() -> None:
    with pytest.raises(ZeroDivisionError), Localnet() as chain:
        pid = chain.pid
        raise ZeroDivisionError
    assert ended(pid)


def test_it_goes_on_at_the_same_endpoint(tmp_path: Path) -> None:
    with Localnet(state=tmp_path / "chain", block_time=0.05) as chain:
        endpoint = chain.endpoint
        assert chain.stop() == 0
        assert "block 0)" not in chain.start() and chain.endpoint == endpoint
        chain.kill()


def test_what_it_died_of_is_the_error(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(LocalnetError, match=r"did not start: error: .*holds no localnet chain"):
        Localnet(state=tmp_path).start()


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="waits for a process that is not its child by a Linux call")
def test_it_ends_with_a_parent_that_was_killed() -> None:
    program = "from subnet.localnet import Localnet; c = Localnet(); c.start(); print(c.pid, flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        chain = int(parent.stdout.readline())
        descriptor = os.pidfd_open(chain)
        parent.send_signal(signal.SIGKILL)
    try:
        assert select.select([descriptor], [], [], PATIENCE)[0], "the chain outlived its parent"
    finally:
        os.close(descriptor)


PLUGIN_TEST = """
import json
from websockets.sync.client import connect

def test_a_chain(localnet, start_localnet):
    with connect(localnet.endpoint) as socket:
        socket.send('{"jsonrpc": "2.0", "id": 1, "method": "system_chain"}')
        assert "result" in json.loads(socket.recv(20))
    assert start_localnet(tempo=7).endpoint != localnet.endpoint
"""


def test_another_projects_tests_get_a_chain_by_the_plugin(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["subnet.localnet.pytest_plugin"]')
    (tmp_path / "test_theirs.py").write_text(PLUGIN_TEST)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", ".", "test_theirs.py"]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_the_plugin_loads_nothing_heavy() -> None:
    program = "import pytest, sys; before = set(sys.modules); import subnet.localnet.pytest_plugin as p; "
    program += "print(*sorted(set(sys.modules) - before))"
    loaded = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    outside = {name.split(".")[0] for name in loaded.stdout.split()} - set(sys.stdlib_module_names)
    assert outside == {"subnet"}
    assert {name for name in loaded.stdout.split() if name.startswith("subnet.localnet.")} == {
        "subnet.localnet.errors", "subnet.localnet.process", "subnet.localnet.pytest_plugin",
    }  # fmt: skip

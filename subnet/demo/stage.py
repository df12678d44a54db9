"""The processes of a swarm on this machine: an embedded chain, one wallet a neuron, and the neurons themselves.

Every child is its own session leader, so that Ctrl-C reaches only the demo, which then stops them in order; and every
child dies with the demo. Uses nothing that the official localnet would not offer as well.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from subnet.demo.board import Seat
from subnet.errors import UserError
from subnet.swarm.process import die_with_parent

NETUID = 2
CHAIN_START_SECONDS = 20.0
STOP_SECONDS = 30.0


@dataclass
class Child:
    """A started process and the file its output goes to."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def tail(self, lines: int = 5) -> str:
        """The last lines it wrote, to explain an unexpected end."""
        return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])


@dataclass
class Stage:
    """Starts children under `out`, and stops them all."""

    out: Path
    block_time: float
    tempo: int
    host: str = "127.0.0.1"
    """Address the chain listens on."""
    children: list[Child] = field(default_factory=list)
    endpoint: str = ""

    @property
    def wallets(self) -> Path:
        return self.out / "wallets"

    def start_chain(self) -> None:
        """Start the embedded chain on a free port and wait until it listens. Raises UserError with its last words."""
        port = free_port()
        self.endpoint = f"ws://{self.host}:{port}"
        flags = ["--host", self.host, "--port", str(port), "--explorer-port", "0", "--block-time", str(self.block_time)]
        flags += ["--tempo", str(self.tempo), "--weights-rate-limit", str(max(1, self.tempo // 4))]
        flags += ["--state", str(self.out / "chain")]
        chain = self.spawn("chain", [sys.executable, "-m", "subnet.localnet", *flags])
        deadline = time.monotonic() + CHAIN_START_SECONDS
        while True:
            if "localnet ready" in chain.tail():
                return
            if not chain.running or time.monotonic() > deadline:
                raise UserError(f"the embedded chain did not start: {chain.tail(1)}")
            time.sleep(0.05)

    def start_neuron(self, seat: Seat, run: str, *extra: str) -> Child:
        """Start a seat's process: miner, validator or free-rider."""
        program = ["subnet.demo.freerider"] if seat.role == "free-rider" else ["subnet.cli", seat.role]
        return self.spawn(seat.name, [sys.executable, "-m", *program, *self.flags(seat, run), *extra])

    def flags(self, seat: Seat, run: str) -> list[str]:
        """What any neuron program has to be told to take this seat."""
        flags = ["--netuid", str(NETUID), "--subtensor.network", self.endpoint, "--run", run, "--home", str(seat.home)]
        flags += ["--wallet.name", seat.name, "--wallet.hotkey", "default", "--wallet.path", str(self.wallets)]
        return [*flags, "--threads", "1"]

    def fallen(self) -> list[Child]:
        """Children that ended without being asked to."""
        return [child for child in self.children if not child.running]

    def stop(self, child: Child, number: int = signal.SIGTERM) -> None:
        """Send one child a signal and forget it."""
        child.process.send_signal(number)
        self.children.remove(child)
        child.process.wait(STOP_SECONDS)

    def kill(self) -> None:
        """End every child at once, without asking."""
        for child in self.children:
            child.process.kill()

    def close_neurons(self) -> None:
        """Let every neuron leave, all at once; kill those that do not in time."""
        _end([child for child in self.children if child.name != "chain"])
        self.children = [child for child in self.children if child.name == "chain"]

    def close(self) -> None:
        """Stop every child: neurons first, the chain last."""
        self.close_neurons()
        _end(self.children)
        self.children = []

    def spawn(self, name: str, command: list[str]) -> Child:
        """Start any command as a child that ends with this process, its output in `logs/NAME.log`."""
        logs = self.out / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        path = logs / f"{name}.log"
        environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}
        with path.open("ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
                preexec_fn=partial(die_with_parent, os.getpid(), _nothing),
            )
        child = Child(name, process, path)
        self.children.append(child)
        return child


def free_port() -> int:
    """A TCP port nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _nothing() -> None:
    """A child has nothing to say before it dies."""


def _end(children: list[Child]) -> None:
    for child in children:
        if child.running:
            child.process.terminate()
    deadline = time.monotonic() + STOP_SECONDS
    for child in children:
        try:
            child.process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.process.kill()
            child.process.wait()

"""The embedded chain for another program: a process of its own, on a free port, that ends with whoever started it.

Not the chain (`__main__` runs that): only its start, its end, and what it said. The chain holds the reading end of a
pipe whose other end is here, so it stops even when this process is killed and can tell it nothing.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType

from subnet.localnet.errors import LocalnetError

START_SECONDS = 30.0
STOP_SECONDS = 10.0
ROOT = Path(__file__).resolve().parents[2]


class Localnet:
    """An embedded chain, running inside `with`:

        with Localnet(block_time=0.05) as chain:
            client = bt.Client(chain.endpoint)

    //Alice has the TAO and the sudo key. It keeps nothing unless given a `state` folder; `start` after `stop` or
    `kill` goes on from there, on the same port.
    """

    def __init__(
        self,
        *,
        block_time: float = 0.25,
        tempo: int = 360,
        weights_rate_limit: int = 100,
        state: Path | None = None,
        port: int = 0,
        beacon: str | None = None,
    ) -> None:
        """block_time: seconds; tempo, weights_rate_limit: blocks, of new subnets; port: 0 takes a free one.

        beacon: URL of a drand HTTP endpoint.
        """
        self.port = port
        # Not the port after its own: with several chains that may be another's.
        self._flags = ["--explorer-port", "0", "--block-time", str(block_time), "--tempo", str(tempo)]
        self._flags += ["--weights-rate-limit", str(weights_rate_limit)]
        self._flags += [] if beacon is None else ["--beacon", beacon]
        self._flags += ["--ephemeral"] if state is None else ["--state", str(state.absolute())]
        self._process: subprocess.Popen[bytes] | None = None
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as this object

    @property
    def endpoint(self) -> str:
        """Websocket URL, for the SDK's `network` or btcli's `--network`."""
        return f"ws://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Of the running chain."""
        assert self._process is not None, "the chain is not running"
        return self._process.pid

    @property
    def log(self) -> str:
        """What it wrote to standard error, all starts together."""
        return os.pread(self._log.fileno(), os.fstat(self._log.fileno()).st_size, 0).decode(errors="replace")

    def start(self) -> str:
        """Starts it, and returns its ready line, which names its genesis and block.

        Raises:
            LocalnetError: it ended or said nothing within 30 s; with its last words.
        """
        assert self._process is None, "the chain is running already"
        command = [sys.executable, "-m", "subnet.localnet", "--until-eof", "--port", str(self.port), *self._flags]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=ROOT,  # where the package is, installed or not, whatever else is called `subnet` here
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            start_new_session=True,  # Ctrl-C is for this program, which then stops the chain
        )
        ready = self._first_line(time.monotonic() + START_SECONDS)
        if "localnet ready" not in ready:
            self.kill()
            said = self.log.strip().splitlines()
            raise LocalnetError(f"the localnet did not start: {said[-1] if said else 'it said nothing'}")
        self.port = int(ready.split("ws://127.0.0.1:")[1].split()[0])
        return ready

    def stop(self) -> int:
        """Ends it in good order, and returns its exit code; LocalnetError if it had to be killed after 10 s."""
        assert self._process is not None, "the chain is not running"
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired as error:
            self.kill()
            raise LocalnetError(f"the localnet did not stop within {STOP_SECONDS:.0f} s and was killed") from error
        return self._release()

    def kill(self) -> None:
        """Ends it with SIGKILL: no chance to tidy up."""
        assert self._process is not None, "the chain is not running"
        self._process.kill()
        self._process.wait()
        self._release()

    def __enter__(self) -> Localnet:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self.stop()

    def _first_line(self, deadline: float) -> str:
        """What it says first; cut short where it ends or the deadline passes."""
        assert self._process is not None and self._process.stdout is not None
        pipe, line = self._process.stdout.fileno(), b""
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while b"\n" not in line and selector.select(max(deadline - time.monotonic(), 0)):
                read = os.read(pipe, 4096)
                if not read:
                    break
                line += read
        first, end, _ = line.partition(b"\n")
        return (first + end).decode(errors="replace")

    def _release(self) -> int:
        process, self._process = self._process, None
        assert process is not None and process.stdin is not None and process.stdout is not None
        process.stdin.close()
        process.stdout.close()
        return process.returncode

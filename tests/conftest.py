"""An embedded chain in a process of its own, for every test that needs a chain.

`localnet` is shared by the whole session: use wallets and subnets of your own. `start_localnet` starts further ones,
with flags.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from queue import Empty, Queue
from typing import Any, TypeVar

import pytest

ALICE_SEED = "0xe5be9a5092b81bca64be81d212e7f2f9eba183bb7a90954f7b76361f6edb5c0a"
START_SECONDS = 30.0
STOP_SECONDS = 10.0
ROOT = Path(__file__).resolve().parent.parent

T = TypeVar("T")


class LoopThread:
    """An event loop that never stands still, in a thread of its own.

    A loop that only runs while a test does will not do: hivemind's futures, when they are answered in between, run the
    loop they were made on in a thread of theirs, and the next test finds it running.
    """

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T], seconds: float) -> T:
        """Have `work` done. TimeoutError after `seconds`, with a word on what every task waits for."""

        async def bounded() -> T:
            task = asyncio.ensure_future(work)
            done, _ = await asyncio.wait({task}, timeout=seconds)
            if not done:
                for waiting in asyncio.all_tasks():
                    waiting.print_stack()
                task.cancel()
                raise TimeoutError(f"not done in {seconds:.0f} s")
            return await task

        return asyncio.run_coroutine_threadsafe(bounded(), self.loop).result()

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self.loop.shutdown_default_executor(), self.loop).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(STOP_SECONDS)
        self.loop.close()


class Localnet:
    """`python -m subnet.localnet` on a port the system chose."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.wallets = folder / "wallets"
        self.flags = flags
        self.port = 0
        self.process: subprocess.Popen[str]
        self.start()

    @property
    def endpoint(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    def start(self) -> str:
        """Starts the process, and returns its ready line; RuntimeError with its output if it ends instead."""
        command = [sys.executable, "-m", "subnet.localnet", "--port", str(self.port), *self.flags]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=ROOT
        )
        lines: Queue[str] = Queue()
        threading.Thread(target=self._read, args=(self.process, lines), daemon=True).start()
        try:
            ready = lines.get(timeout=START_SECONDS)
        except Empty:
            ready = ""
        if "ready" not in ready:
            self.kill()
            assert self.process.stderr is not None
            raise RuntimeError(f"the localnet did not start: {self.process.stderr.read()}")
        self.port = int(ready.split("ws://127.0.0.1:")[1].split()[0])
        return ready

    @staticmethod
    def _read(process: subprocess.Popen[str], lines: Queue[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line)
        lines.put("")

    def kill(self) -> None:
        """SIGKILL: no chance to tidy up."""
        self.process.kill()
        self.process.wait(STOP_SECONDS)

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_SECONDS)

    def wallet(self, name: str) -> Any:
        """A wallet on disk without passwords, its keys derived from its name ("alice": the dev key with the TAO)."""
        from bittensor import Wallet

        wallet = Wallet(name, "default", str(self.wallets))
        if not wallet.coldkey_file.exists_on_device():
            seed = ALICE_SEED if name == "alice" else "0x" + blake2b(name.encode(), digest_size=32).hexdigest()
            hot = "0x" + blake2b(f"{name}/hot".encode(), digest_size=32).hexdigest()
            wallet.regenerate_coldkey(seed=seed, use_password=False, suppress=True)
            wallet.regenerate_hotkey(seed=hot, use_password=False, suppress=True)
        return wallet

    @property
    def alice(self) -> Any:
        return self.wallet("alice")


@pytest.fixture(scope="session")
def loop_thread() -> Iterator[LoopThread]:
    """For tests that share what lives on a loop; Linux ends the processes forked in a thread together with it."""
    thread = LoopThread()
    yield thread
    thread.close()


@pytest.fixture(scope="session")
def sdk_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keeps what the SDK and btcli cache out of the user's home."""
    home = tmp_path_factory.mktemp("sdk")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BITTENSOR_RUNTIME_CACHE_DIR", str(home / "runtime"))
        patch.setenv("BTCLI_CONFIG", str(home / "config.yml"))
        patch.setenv("BTCLI_TOKEN_SYMBOLS_CACHE", str(home / "symbols.json"))
        patch.setenv("BTCLI_SUBNET_NAMES_CACHE", str(home / "names.json"))
        yield home


@pytest.fixture(scope="session")
def start_localnet(sdk_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Localnet]]:
    """`start_localnet("--tempo", "10", ...)`: a chain of its own, stopped with the session if not before."""
    started: list[Localnet] = []

    def start(*flags: str) -> Localnet:
        started.append(Localnet(tmp_path_factory.mktemp("localnet"), *flags))
        return started[-1]

    yield start
    for net in started:
        if net.process.poll() is None:
            net.kill()


@pytest.fixture(scope="session")
def localnet(start_localnet: Callable[..., Localnet]) -> Localnet:
    """The session's shared chain: 0.05 s blocks, epochs of 20 blocks, weights every 5 blocks, nothing kept."""
    return start_localnet("--ephemeral", "--block-time", "0.05", "--tempo", "20", "--weights-rate-limit", "5")


@pytest.fixture
def epoch_of() -> Callable[..., Any]:
    """One epoch of Yuma: weights by miner of validators of equal stake -> what it pays them.

    Called with each validator's shares by miner, the number of miners, and the bonds after the epoch before. Validators
    have the first uids. Weights go through the SDK's own conversion. Returns an `EpochResult`.
    """
    from bittensor.intents.weights import normalize  # few tests need the SDK: it takes a second to import

    from subnet.localnet.consensus.yuma import EpochInputs, epoch

    def run(rows: Sequence[Mapping[int, float]], miners: int, bonds: Any = None) -> Any:
        validators = len(rows)
        n = validators + miners
        on_chain = [normalize([validators + miner for miner in row], list(row.values())) for row in rows]
        return epoch(
            EpochInputs(
                alpha_stake=[10**12] * validators + [0] * miners,
                root_stake=[0] * n,
                last_update=[1] * n,
                registered_at=[0] * n,
                weights=[list(zip(*each, strict=True)) for each in on_chain] + [[] for _ in range(miners)],
                bonds=bonds or [[]] * n,
                validator_permit=[True] * validators + [False] * miners,
                current_block=2,
                tempo=1,
                rao_emission=10**9,
            )
        )

    return run

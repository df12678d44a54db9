"""What all tests share: the embedded chain's fixtures (`localnet`, `start_localnet`), wallets for it, an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

pytest_plugins = ["subnet.localnet.pytest_plugin"]

ALICE_SEED = "0xe5be9a5092b81bca64be81d212e7f2f9eba183bb7a90954f7b76361f6edb5c0a"
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


def dev(name: str) -> Any:
    """A `DevWallet` whose keys follow from its name ("alice": the dev key with the TAO)."""
    from subnet.chain import wallets  # few tests need the SDK: it takes a second to import
    from subnet.chain.keys import hotkey_from_uri

    if name == "alice":
        return wallets.alice()
    return wallets.DevWallet(hotkey_from_uri(f"//{name}").keypair, hotkey_from_uri(f"//{name}//hot").keypair)


@pytest.fixture(scope="session")
def loop_thread() -> Iterator[LoopThread]:
    """For tests that share what lives on a loop; Linux ends the processes forked in a thread together with it."""
    thread = LoopThread()
    yield thread
    thread.close()


@pytest.fixture(scope="session", autouse=True)
def _sdk_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keeps what the SDK and btcli cache out of the user's home."""
    home = tmp_path_factory.mktemp("sdk")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BITTENSOR_RUNTIME_CACHE_DIR", str(home / "runtime"))
        patch.setenv("BTCLI_CONFIG", str(home / "config.yml"))
        patch.setenv("BTCLI_TOKEN_SYMBOLS_CACHE", str(home / "symbols.json"))
        patch.setenv("BTCLI_SUBNET_NAMES_CACHE", str(home / "names.json"))
        yield


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

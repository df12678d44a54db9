"""The demo's processes: how they are stopped, and how they are killed."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import sys
from pathlib import Path

import pytest
from rich.console import Console

from subnet.cli.demo import stopping
from subnet.demo.stage import Stage

STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); signal.pause()"
PATIENCE = 30.0


async def until_said(child_log: Path, word: str) -> None:
    async def look() -> None:
        while word not in child_log.read_text():
            await asyncio.sleep(0.01)

    await asyncio.wait_for(look(), PATIENCE)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_interrupt_is_answered_and_the_second_kills(tmp_path: Path, number: signal.Signals) -> None:
    stage = Stage(tmp_path, block_time=0.25, tempo=72)
    said = io.StringIO()
    before = signal.getsignal(number)

    async def act() -> None:
        child = stage.spawn("miner-1", [sys.executable, "-c", STUBBORN])
        await until_said(child.log, "deaf")
        task = asyncio.current_task()
        assert task is not None
        with stopping(Console(file=said), stage, task):
            try:
                os.kill(os.getpid(), number)
                assert "stopping" in said.getvalue() and child.running
                await asyncio.wait_for(asyncio.Event().wait(), PATIENCE)
            finally:
                # As while the demo waits for a child that does not leave.
                os.kill(os.getpid(), number)
                assert child.process.wait(PATIENCE) == -signal.SIGKILL

    try:
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(act())
    finally:
        stage.kill()
    assert "killing" in said.getvalue() and signal.getsignal(number) is before


def test_neurons_leave_before_the_chain_ends(tmp_path: Path) -> None:
    stage = Stage(tmp_path, block_time=0.25, tempo=72)
    polite = "import signal; print('here', flush=True); signal.pause()"
    children = [stage.spawn(name, [sys.executable, "-c", polite]) for name in ("chain", "miner-1")]
    stage.close_neurons()
    assert [child.running for child in children] == [True, False]
    stage.close()
    assert not children[0].running and stage.children == []

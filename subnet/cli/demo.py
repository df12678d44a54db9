"""`sn38 demo`: a chain, miners, validators, a free-rider and a late joiner on this machine, one model, and a verdict.

    ./run demo --minutes 3

Exit code 0 when the held-out loss fell by a quarter, every neuron ended with the same state, and the free-rider was not
paid; 1 with the reasons otherwise; 2 for what the user can mend. Ctrl-C stops every child.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live

from subnet.chain import wallets
from subnet.chain.client import Chain
from subnet.chain.errors import ChainUnreachable
from subnet.config import load_run, with_manifest
from subnet.data.prepare import prepare
from subnet.demo import view
from subnet.demo.board import Board, Pay, Seat
from subnet.demo.stage import NETUID, Stage
from subnet.errors import UserError
from subnet.home import shards_folder

BLOCK_TIME = 0.25
TEMPO = 72
VALIDATOR_STAKE = 1_000.0
PURSE = 5_000.0
"""TAO every participant is given: enough to register, to stake, and to found the subnet."""
LATE = 0.35
"""When the late joiner is started, as a share of the demo."""
MIN_MINUTES = 1.5
LOOK_SECONDS = 0.5
CHAIN_LOOK_SECONDS = 3.0


def main(argv: list[str]) -> int:
    """Run the demo; see the module's docstring for the exit codes."""
    flags = argparse.ArgumentParser(prog="sn38 demo", formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    flags.add_argument("--minutes", type=float, default=3.0, help="how long the swarm runs")
    flags.add_argument("--miners", type=int, default=4, help="honest miners from the start")
    flags.add_argument("--validators", type=int, default=2)
    flags.add_argument("--run", default="demo", help="run file, or the name of one that is shipped")
    flags.add_argument("--out", type=Path, help="folder for everything it writes (out/demo-TIME)")
    args = flags.parse_args(argv)
    if not args.minutes >= MIN_MINUTES:
        raise UserError(f"--minutes must be at least {MIN_MINUTES:g}: in less the model cannot learn enough to pass")
    if not 1 <= args.miners <= 64 or not 1 <= args.validators <= 16:
        raise UserError("--miners must be 1 to 64, --validators 1 to 16")
    out = (args.out or Path("out") / f"demo-{datetime.now():%Y%m%d-%H%M%S}").absolute()
    if out.exists() and any(out.iterdir()):
        raise UserError(f"{out} is not empty; give another folder with --out")
    try:
        return asyncio.run(_perform(args, out))
    except (KeyboardInterrupt, asyncio.CancelledError):
        print(f"\nstopped; every child has ended. What there is lies in {out}")
        return 130


async def _perform(args: argparse.Namespace, out: Path) -> int:
    # The model is too small for more threads to pay, and the neurons want every core.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    console = Console()
    started = time.monotonic()
    run = load_run(args.run)
    shards = prepare(run.data, shards_folder(), run.model.seq_len)
    seats = [Seat(f"validator-{i + 1}", "validator", out / f"validator-{i + 1}", "") for i in range(args.validators)]
    seats += [Seat(f"miner-{i + 1}", "miner", out / f"miner-{i + 1}", "") for i in range(args.miners)]
    late = Seat("late-miner", "miner", out / "late-miner", "")
    seats += [Seat("free-rider", "free-rider", out / "free-rider", ""), late]
    board = Board(seats)
    stage = Stage(out, BLOCK_TIME, TEMPO)
    task = asyncio.current_task()
    assert task is not None
    _on_interrupt(console, task, stage, asyncio.get_running_loop())
    try:
        console.print("starting the chain, creating wallets, registering and staking ...")
        stage.start_chain()
        chain = await Chain.connect(stage.endpoint)
        try:
            staked = await found(chain, stage, seats, console)
            for seat in seats:
                if seat is not late:
                    stage.start_neuron(seat, args.run, "--no-wandb")
            await _watch(args.minutes * 60, board, stage, chain, staked, late, args.run, console)
            console.print("stopping the neurons ...")
            await asyncio.to_thread(stage.close_neurons)
            await _look_at_chain(chain, board, staked)
        finally:
            await chain.close()
    finally:
        stage.close()
    board.read()
    from subnet.demo.report import conclude, text

    summary = await asyncio.to_thread(conclude, board, with_manifest(run, shards.manifest_hash), shards, out)
    _say(console, f"\n{text(summary, out)}\ntook           {time.monotonic() - started:.0f} s")
    return 1 if summary.failures else 0


def _on_interrupt(console: Console, task: asyncio.Task[Any], stage: Stage, loop: asyncio.AbstractEventLoop) -> None:
    """Ctrl-C or SIGTERM: say so and stop in order; once more, and the children are killed."""
    asked = False

    def handle(number: int, frame: object) -> None:
        nonlocal asked
        if asked:
            stage.kill()
            return
        asked = True
        _say(console, "\nstopping: the neurons finish what they have committed to (Ctrl-C again kills them) ...")
        loop.call_soon_threadsafe(task.cancel)

    # Not the loop's own handlers: those wait while the loop waits for a child to end.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handle)


async def found(chain: Chain, stage: Stage, seats: list[Seat], console: Console) -> dict[str, float]:
    """Wallets, money, the subnet and everybody's registration; returns the stake each hotkey starts with."""
    alice = wallets.alice()
    owner = wallets.create_wallet(stage.wallets, "owner")
    await wallets.fund(chain, alice, owner.coldkey_ss58, PURSE)
    netuid = await wallets.register_subnet(chain, owner)
    assert netuid == NETUID, f"a fresh chain's first new subnet is {NETUID}, got {netuid}"
    await wallets.start_call(chain, owner, netuid)
    for seat in seats:
        wallet = wallets.create_wallet(stage.wallets, seat.name)
        seat.hotkey = wallet.hotkey_ss58
        await wallets.fund(chain, alice, wallet.coldkey_ss58, PURSE)
        uid = await wallets.burned_register(chain, wallet, netuid)
        if seat.role == "validator":
            await wallets.add_stake(chain, wallet, netuid, VALIDATOR_STAKE)
        _say(console, f"  {seat.name:<12} uid {uid}  {seat.hotkey}")
    return {row.hotkey: row.stake for row in (await chain.metagraph(netuid)).rows}


async def _watch(
    seconds: float,
    board: Board,
    stage: Stage,
    chain: Chain,
    staked: dict[str, float],
    late: Seat,
    run: str,
    console: Console,
) -> None:
    """Show the swarm for `seconds`, start the late joiner on the way. Raises UserError when a child has ended."""
    start = time.monotonic()
    next_chain_look = start
    waiting = True
    with contextlib.ExitStack() as stack:
        show = _shower(console, stack, board)
        while (elapsed := time.monotonic() - start) < seconds:
            if waiting and elapsed >= LATE * seconds:
                waiting = False
                stage.start_neuron(late, run, "--no-wandb")
            if time.monotonic() >= next_chain_look:
                next_chain_look = time.monotonic() + CHAIN_LOOK_SECONDS
                with contextlib.suppress(ChainUnreachable):
                    await _look_at_chain(chain, board, staked)
            for child in stage.fallen():
                raise UserError(
                    f"{child.name} ended by itself; its last words:\n{child.tail()}\n(all of them: {child.log})"
                )
            show(seconds - elapsed, board.read())
            await asyncio.sleep(LOOK_SECONDS)


def _shower(console: Console, stack: contextlib.ExitStack, board: Board) -> Callable[[float, list[dict]], None]:
    """A live table on a terminal, else a line for each finished round."""
    if console.is_terminal:
        live = stack.enter_context(Live(console=console, refresh_per_second=2))
        return lambda left, events: live.update(view.table(board, left, "Ctrl-C stops"))

    def lines(left: float, events: list[dict]) -> None:
        for event in events:
            if event["event"] in ("round", "scores"):
                _say(console, view.line(board, event))

    return lines


def _say(console: Console, text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)


async def _look_at_chain(chain: Chain, board: Board, staked: dict[str, float]) -> None:
    graph = await chain.metagraph(NETUID)
    board.block = graph.block
    board.pay = {
        row.hotkey: Pay(row.uid, row.incentive, row.dividends, row.stake - staked.get(row.hotkey, 0.0), row.permit)
        for row in graph.rows
    }

"""`sn38 demo`: a chain, miners, validators, a free-rider and a late joiner on this machine, one model, and a verdict.

    ./run demo --minutes 3

Exit code 0 when the held-out loss fell by a quarter, every neuron ended with the same state, and the free-rider was not
paid; 1 with the reasons otherwise; 2 for what the user can mend. Ctrl-C stops every child, a second one kills them.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live

from subnet.chain import wallets
from subnet.chain.client import Chain
from subnet.chain.errors import ChainUnreachable
from subnet.config import RunConfig, load_run, with_manifest
from subnet.data.prepare import prepare
from subnet.demo import view
from subnet.demo.board import Board, Pay, Seat
from subnet.demo.stage import NETUID, STOP_SECONDS, Stage
from subnet.errors import UserError
from subnet.home import shards_folder

BLOCK_TIME = 0.25
TEMPO = 72
VALIDATOR_STAKE = 1_000.0
PURSE = 5_000.0
"""TAO every participant is given: enough to register, to stake, and to found the subnet."""
LATE = 0.35
"""When the late joiner is started, as a share of the demo."""
MIN_ROUNDS = 6
"""Rounds within which the loss has fallen, the late joiner is in, scores have become weights and an epoch has paid."""
LOOK_SECONDS = 0.5
CHAIN_LOOK_SECONDS = 3.0


def main(argv: list[str]) -> int:
    """Run the demo; see the module's docstring for the exit codes."""
    flags = argparse.ArgumentParser(prog="sn38 demo", formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    flags.add_argument(
        "--minutes", type=float, default=3.0, help=f"how long the swarm runs, {MIN_ROUNDS} rounds at least"
    )
    flags.add_argument("--miners", type=int, default=4, help="honest miners from the start")
    flags.add_argument("--validators", type=int, default=2)
    flags.add_argument("--run", default="demo", help="run file, or the name of one that is shipped")
    flags.add_argument("--out", type=Path, help="folder for everything it writes (out/demo-TIME)")
    args = flags.parse_args(argv)
    if not 1 <= args.miners <= 64 or not 1 <= args.validators <= 16:
        raise UserError("--miners must be 1 to 64, --validators 1 to 16")
    run = load_run(args.run)
    least = MIN_ROUNDS * run.rounds.blocks * BLOCK_TIME / 60
    if not args.minutes >= least:
        raise UserError(f"--minutes must be at least {least:.3g}: {MIN_ROUNDS} rounds of the run, or it cannot pass")
    out = (args.out or Path("out") / f"demo-{datetime.now():%Y%m%d-%H%M%S}").absolute()
    if out.exists() and any(out.iterdir()):
        raise UserError(f"{out} is not empty; give another folder with --out")
    try:
        return _perform(args, run, out)
    except (KeyboardInterrupt, asyncio.CancelledError):
        print(f"\nstopped; every child has ended. What there is lies in {out}")
        return 130


def _perform(args: argparse.Namespace, run: RunConfig, out: Path) -> int:
    # The model is too small for more threads to pay, and the neurons want every core.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    console = Console()
    started = time.monotonic()
    shards = prepare(run.data, shards_folder(), run.model.seq_len)
    board = asyncio.run(_live(args, out, console))
    from subnet.demo.report import conclude, text

    # Outside the event loop, where Ctrl-C ends it at once.
    summary = conclude(board, with_manifest(run, shards.manifest_hash), shards, out)
    _say(console, f"\n{text(summary, out, time.monotonic() - started)}")
    return 1 if summary.failures else 0


async def _live(args: argparse.Namespace, out: Path, console: Console) -> Board:
    """The swarm from its chain's start to its end; returns what was seen of it."""
    seats = [Seat(f"validator-{i + 1}", "validator", out / f"validator-{i + 1}", "") for i in range(args.validators)]
    seats += [Seat(f"miner-{i + 1}", "miner", out / f"miner-{i + 1}", "") for i in range(args.miners)]
    late = Seat("late-miner", "miner", out / "late-miner", "")
    seats += [Seat("free-rider", "free-rider", out / "free-rider", ""), late]
    board = Board(seats)
    stage = Stage(out, BLOCK_TIME, TEMPO)
    task = asyncio.current_task()
    assert task is not None
    with stopping(console, stage, task):
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
    return board


@contextlib.contextmanager
def stopping(console: Console, stage: Stage, task: asyncio.Task[Any]) -> Iterator[None]:
    """Within it, Ctrl-C or SIGTERM says so and cancels `task`; a second one kills every child of `stage`."""
    loop = task.get_loop()
    asked = False

    def handle(number: int, frame: object) -> None:
        nonlocal asked
        if asked:
            _say(console, "killing them ...")
            stage.kill()
            return
        asked = True
        _say(console, f"\nstopping; the neurons have {STOP_SECONDS:.0f} s to leave (Ctrl-C again kills them) ...")
        loop.call_soon_threadsafe(task.cancel)

    # Not the loop's own handlers: those have to wait while the loop waits for a child.
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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

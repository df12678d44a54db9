"""`sn38 attack`: play attacks on a swarm and report what they took, how soon they were found, and what they broke."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from subnet.errors import UserError

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from subnet.attack.season import Setting

RESULTS = Path("attacks.jsonl")


def parser() -> argparse.ArgumentParser:
    """The flags."""
    flags = argparse.ArgumentParser(prog="sn38 attack", description=__doc__)
    flags.add_argument("attacks", nargs="*", metavar="ATTACK", help="which to play (see --list)")
    flags.add_argument("--all", action="store_true", help="all of them, under every rule, by 2, 4 and 7 of 16 peers")
    flags.add_argument("--list", action="store_true", help="their names")
    flags.add_argument("--attackers", type=int, nargs="+", metavar="N", help="of 16 peers (default: 4; --all: 2 4 7)")
    rules = "mean", "trimmed", "centered_clip"
    flags.add_argument("--rules", nargs="+", choices=rules, help="of aggregation (default: mean and centered_clip)")
    flags.add_argument("--results", type=Path, default=RESULTS, help=f"file of played cells (default: {RESULTS})")
    flags.add_argument("--table", action="store_true", help="only print the table of what is in the file")
    return flags


def main(argv: list[str]) -> int:
    """Play what is missing and print the table."""
    args = parser().parse_args(argv)
    from subnet.attack.players import names

    known = names()
    if args.list:
        print("\n".join(known))
        return 0
    if wrong := [name for name in args.attacks if name not in known]:
        raise UserError(f"no attack {wrong[0]!r}; sn38 attack --list names them")
    if not (args.attacks or args.all or args.table):
        raise UserError("name an attack, or --all (about half an hour on two cores); sn38 attack --list names them")
    import torch
    from rich.console import Console

    from subnet.attack import report

    torch.set_num_threads(1)
    if not args.table:
        attacks = known if args.all else args.attacks
        counts = args.attackers or (report.COUNTS if args.all else report.COUNTS[:1])
        _play(report.grid(attacks, counts, args.rules or report.RULES), args.results)
    results = report.read(args.results)
    if not results:
        raise UserError(f"there is nothing in {args.results} yet")
    Console(soft_wrap=True).print(report.table(results), markup=False, highlight=False)
    print(f"{len(results)} cells in {args.results}")
    return 0


def _play(cells: Sequence[Setting], path: Path) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from subnet.attack import report
    from subnet.attack.season import play

    missing = [cell for cell in cells if cell not in report.read(path)]
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True)) as bars:
        whole = bars.add_task("cells", total=len(missing))
        for cell in missing:
            if cell in report.read(path):  # another process plays the same grid
                bars.advance(whole)
                continue
            told = f"{cell.attack or 'nobody'}, {cell.attackers} of {cell.peers}, {cell.rule}"
            rounds = bars.add_task(told, total=cell.rounds)
            report.append(path, play(cell, partial(_tell, bars, rounds)))
            bars.remove_task(rounds)
            bars.advance(whole)


def _tell(bars: Progress, task: TaskID, done: int, total: int) -> None:
    bars.update(task, completed=done, total=total)

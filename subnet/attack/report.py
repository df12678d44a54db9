"""What the played cells show: one line of JSON each, and the table made of them.

A cell that is in the file is not played again, so a long grid can be interrupted, and whoever wants to check a cell
deletes its line.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from subnet.attack.players import PLAYERS, REDUCE_BADLY, work_of
from subnet.attack.season import Season, Setting, without
from subnet.attack.world import Rule
from subnet.errors import UserError

COUNTS = (4, 2, 7)
"""Attackers among 16, the most telling first: a quarter, an eighth, seven sixteenths."""
RULES: tuple[Rule, ...] = ("mean", "centered_clip")
_REDUNDANCY = (1, 2)
LATE = Setting("", 0, "mean", rounds=16, late=2)
"""Two machines that come later: the newcomer's ramp."""

Results = dict[Setting, dict[str, Any]]


def grid(attacks: Iterable[str], counts: Iterable[int], rules: Sequence[Rule]) -> list[Setting]:
    """The cells of a report, those of a quarter first; every attacked one has its honest machines alone beside it.

    Bad reducers are also played against where each part has two.
    """
    cells: dict[Setting, None] = {}
    for count in counts:
        for attack in attacks:
            for rule in rules:
                for redundancy in _REDUNDANCY if attack in REDUCE_BADLY else (1,):
                    cell = Setting(attack, count, rule, redundancy=redundancy)
                    cells[without(cell)] = None
                    cells[cell] = None
    return [*cells, LATE]


def figures(season: Season) -> dict[str, Any]:
    """What is kept of a cell."""
    last, machine = len(season.pay) - 1, season.machine(len(season.pay) - 1)
    most = max((season.pay[last][h] for h in season.cheats), default=0.0)
    slowest = min((season.pay[last][h] for h, speed in season.honest.items() if speed == 0.5), default=0.0)
    rounds = sum(1 for pay in season.pay for hotkey in season.honest if hotkey in pay)
    return {
        "taken": round(season.taken(last), 4),
        "most_by_one": round(most / machine, 4) if machine else None,
        "found_after": season.found_after(),
        "flagged": sum(map(len, season.flagged)),
        "honest_rounds": rounds,
        "loss": round(season.losses[-1], 4),
        "ramp": season.ramp() if season.setting.late else None,
        "slowest": round(slowest / machine, 3) if machine else None,
    }


def read(path: Path) -> Results:
    """Cells that were played, and their figures. Raises UserError for a line that is none."""
    results: Results = {}
    if path.exists():
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            try:
                entry = json.loads(line)
                results[Setting(**entry.pop("cell"))] = entry
            except (ValueError, TypeError, KeyError) as error:
                raise UserError(f"{path}:{number} is not a played cell; delete the line") from error
    return results


def append(path: Path, season: Season) -> None:
    """Add a cell to the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"cell": dataclasses.asdict(season.setting), **figures(season)}) + "\n")


def table(results: Results) -> str:
    """Markdown: a row for each attack and number of attackers, the rules side by side."""
    measured = [f"{what}, {rule}" for what in ("taken", "each", "found", "loss") for rule in RULES]
    head = ["attack", "of 16", "work", *measured]
    lines = [_row(head), _row(["---"] * len(head))]
    for attack in PLAYERS:
        for redundancy, count in product(_REDUNDANCY, sorted(COUNTS)):
            cells = [Setting(attack, count, rule, redundancy=redundancy) for rule in RULES]
            if any(cell in results for cell in cells):
                name = attack if redundancy == 1 else f"{attack}, {redundancy} reducers a part"
                lines.append(_row([name, str(count), f"{work_of(attack, count):g}", *_columns(results, cells)]))
    return "\n".join([*lines, "", *_summary(results)])


def _columns(results: Mapping[Setting, Mapping[str, Any]], cells: Sequence[Setting]) -> Iterator[str]:
    found = [results.get(cell) for cell in cells]
    for what in ("taken", "most_by_one", "found_after"):
        for result in found:
            yield "-" if result is None else _number(result[what])
    for cell, result in zip(cells, found, strict=True):
        alone = results.get(without(cell))
        yield "-" if result is None or alone is None else f"{100 * (result['loss'] / alone['loss'] - 1):+.1f} %"


def _summary(results: Results) -> list[str]:
    honest = sum(r["honest_rounds"] for r in results.values())
    flagged = sum(r["flagged"] for r in results.values())
    lines = [f"Honest peer-rounds: {honest:,}, of which held for a cheat's: {flagged}."]
    if LATE in results:
        ramp = results[LATE]["ramp"]
        lines.append(f"Newcomers: half of an established equal's pay in {ramp} rounds from their first commitment.")
    slow = [r["slowest"] for cell, r in results.items() if not cell.attack and r["slowest"] is not None]
    if slow:
        span = f"{min(slow):.2f} to {max(slow):.2f}"
        lines.append(f"Honest machines with half of the steps: the least paid gets {span} of a full machine's pay.")
    return lines


def _number(value: float | int | None) -> str:
    return "never" if value is None else f"{value:g}"


def _row(columns: Sequence[str]) -> str:
    return f"| {' | '.join(columns)} |"

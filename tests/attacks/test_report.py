"""Cells on file: read back, never played twice, and the table of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from subnet.attack.report import LATE, append, figures, grid, read, table
from subnet.attack.season import Season, Setting, without
from subnet.cli.attack import main
from subnet.errors import UserError


def season(setting: Setting, pay: float, loss: float) -> Season:
    made = Season(setting, [{"honest-00": 0.5, "cheat-0": 0.5}, {"honest-00": 1.0 - pay, "cheat-0": pay}], [5.0, loss])
    made.honest, made.cheats, made.flagged = {"honest-00": 1.0, "honest-01": 0.5}, ["cheat-0"], [[], ["honest-00"]]
    for each in made.pay:
        each["honest-01"] = 0.25
    return made


def test_what_is_kept_of_a_cell() -> None:
    found = figures(season(Setting("ALIE", 4, "mean"), 0.0, 2.0))
    assert found["taken"] == found["most_by_one"] == 0.0 and found["found_after"] == 1
    assert (found["flagged"], found["honest_rounds"], found["loss"], found["slowest"]) == (1, 4, 2.0, 0.25)
    assert figures(season(Setting("ALIE", 4, "mean"), 0.2, 2.0))["found_after"] is None


def test_cells_come_back_from_the_file_and_make_a_table(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "attacks.jsonl"
    cell = Setting("ALIE", 4, "mean")
    append(path, season(cell, 0.0, 2.2))
    append(path, season(without(cell), 0.0, 2.0))
    assert read(path).keys() == {cell, without(cell)}
    (line,) = [line for line in table(read(path)).splitlines() if line.startswith("| ALIE")]
    assert line == "| ALIE | 4 | 0 | 0 | - | 0 | - | 1 | - | +10.0 % | - |"
    with path.open("a") as file:
        file.write('{"cell": {"attack": "x"}}\n')
    with pytest.raises(UserError, match=r"attacks\.jsonl:3 is not a played cell"):
        read(path)


def test_a_grid_has_every_cell_and_the_honest_alone_beside_it() -> None:
    cells = grid(["ALIE", "sign flip"], [4, 7], ["mean"])
    assert len(cells) == len(set(cells)) == 4 + 2 + 1 and cells[-1] == LATE
    assert cells.index(without(Setting("ALIE", 4, "mean"))) < cells.index(Setting("ALIE", 4, "mean"))


def test_bad_reducers_meet_a_second_one_too(tmp_path: Path) -> None:
    alone, beside = (Setting("lying reducer", 4, "mean", redundancy=n) for n in (1, 2))
    assert grid(["lying reducer"], [4], ["mean"]) == [without(alone), alone, beside, LATE]
    path = tmp_path / "attacks.jsonl"
    append(path, season(without(beside), 0.0, 2.0))
    append(path, season(beside, 0.0, 2.0))
    (line,) = [line for line in table(read(path)).splitlines() if line.startswith("| lying")]
    assert line == "| lying reducer, 2 reducers a part | 4 | 0 | 0 | - | 0 | - | 1 | - | +0.0 % | - |"


def test_the_command_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match="no attack 'bribery'"):
        main(["bribery"])
    with pytest.raises(UserError, match="name an attack, or --all"):
        main([])
    with pytest.raises(UserError, match="nothing in"):
        main(["--table", "--results", str(tmp_path / "none.jsonl")])
    assert main(["--list"]) == 0 and "sign flip" in capsys.readouterr().out

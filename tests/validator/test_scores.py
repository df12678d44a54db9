"""The score table on disk."""

from pathlib import Path

import pytest

from subnet.config import load_run
from subnet.errors import UserError
from subnet.scoring.table import Observation, ScoreTable, observe
from subnet.validator import scores


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    table = observe(ScoreTable(), 3, {"a": Observation(None, 0.5, True)}, load_run("demo").scoring)
    scores.save(tmp_path / "scores.json", table)
    assert scores.load(tmp_path / "scores.json") == table
    assert scores.load(tmp_path / "none.json") == ScoreTable()


def test_a_table_that_cannot_be_written_is_one_line_and_the_old_one_stays(tmp_path: Path) -> None:
    path = tmp_path / "scores.json"
    scores.save(path, ScoreTable())
    path.with_suffix(".new").mkdir()
    with pytest.raises(UserError, match="cannot save the scores"):
        scores.save(path, ScoreTable(round=5))
    assert scores.load(path) == ScoreTable()

"""The score table as JSON: exact both ways, and one clear error for everything else."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subnet.scoring import table as table_module
from subnet.scoring.document import MAX_JSON_BYTES, from_json, to_json
from subnet.scoring.ratings import Rating
from subnet.scoring.table import Average, Row, ScoreTable
from subnet.scoring.trained import SURE

share = st.floats(0, 1)
averages = st.builds(lambda weight, part: Average(weight * part, weight), share, share)
rows = st.builds(
    Row,
    st.builds(Rating, st.floats(-1e6, 1e6), st.floats(1e-3, 1e3)),
    averages,
    averages,
    averages,
    st.floats(-SURE, SURE),
    st.integers(-1, 100),
    st.integers(-1, 600),
)


@given(st.dictionaries(st.text(max_size=8), rows, max_size=4), st.floats(-1e6, 1e6))
@settings(max_examples=60, deadline=None)
def test_json_round_trip_is_exact(rows: dict[str, Row], nothing: float) -> None:
    table = ScoreTable(rows, 100, Rating(nothing, 8.0))
    assert from_json(to_json(table)) == table


keys = st.sampled_from(["rows", "round", "version", "x"])
documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
)


@given(documents)
@settings(max_examples=100, deadline=None)
def test_any_other_json_is_one_clear_error(document: object) -> None:
    with pytest.raises(ValueError):
        from_json(json.dumps(document))


def mended(**changes: object) -> dict:
    full = [0.2, 0.2]
    row = {"rating": [25.0, 8.0], "evidence": [0.1, 0.2], "participation": full, "digest": full, "trained": -2,
           "last_round": 3, "barred_until": -1}  # fmt: skip
    return {"version": 3, "round": 3, "nothing": [25.0, 8.0], "rows": {"a": {**row, **changes}}}


def test_from_json_reads_the_shape_the_broken_ones_are_made_from() -> None:
    assert from_json(json.dumps(mended())).rows["a"].rating == Rating(25.0, 8.0)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "Expecting value"),
        ("[" * 100_000, r"nested too deeply|Expecting value"),
        ('{"version": 3, "version": 3, "round": 3, "rows": {}}', "repeats a key"),
        (json.dumps({**mended(), "version": 1}), "version 1"),
        ("[2]", "the score table must be a table of exactly"),
        (json.dumps({**mended(), "round": 2}), "after the table's round 2"),
        (json.dumps({**mended(), "round": True}), "whole number"),
        (json.dumps({**mended(), "extra": 0}), "exactly"),
        (json.dumps({**mended(), "rows": {str(n): {} for n in range(table_module.MAX_ROWS + 1)}}), "at most"),
        (json.dumps(mended(extra=0)), "a must be a table of exactly"),
        (json.dumps(mended(rating=[25.0, math.nan])), "finite"),
        (json.dumps(mended(rating=[25.0, 0.0])), "sigma above 0"),
        (json.dumps(mended(rating=[25.0])), "two numbers"),
        (json.dumps(mended(rating=["25", 1])), "two numbers"),
        (json.dumps(mended(rating=[10**400, 1])), "finite"),
        (json.dumps(mended(evidence=[0.3, 0.2])), "total <= weight"),
        (json.dumps(mended(digest=[-0.1, 0.2])), "total <= weight"),
        (json.dumps(mended(participation=[1.5, 1.5])), "total <= weight"),
        (json.dumps(mended(last_round=1.0)), "whole number"),
        (json.dumps(mended(trained=6.1)), "within"),
        (json.dumps(mended(trained=math.nan)), "within"),
        (json.dumps(mended(trained=True)), "within"),
        (json.dumps({**mended(), "nothing": [25.0, 0.0]}), "nothing must have a sigma above 0"),
        (" " * (MAX_JSON_BYTES + 1), "at most"),
    ],
)
def test_from_json_refuses_and_names_the_place(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        from_json(text)

"""The score table as JSON: what a validator keeps between runs.

Canonical when written, strict when read: a damaged or doctored file is one clear error and never a strange table.
"""

import json
import math
from typing import Any

from subnet.scoring.ratings import Rating
from subnet.scoring.table import MAX_ROWS, Average, Row, ScoreTable
from subnet.scoring.trained import SURE

MAX_JSON_BYTES = 4 * 1024 * 1024
_VERSION = 3
_AVERAGES = ("evidence", "participation", "digest")


def to_json(table: ScoreTable) -> str:
    """Canonical JSON: equal tables give equal text, and floats round-trip exactly."""
    rows = {
        hotkey: {
            "rating": list(row.rating),
            "evidence": list(row.evidence),
            "participation": list(row.participation),
            "digest": list(row.digest),
            "trained": row.trained,
            "last_round": row.last_round,
            "barred_until": row.barred_until,
        }
        for hotkey, row in table.rows.items()
    }
    document = {"version": _VERSION, "round": table.round, "nothing": list(table.nothing), "rows": rows}
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)


def from_json(text: str) -> ScoreTable:
    """The table that `to_json` wrote. Raises ValueError, naming the place, on anything else: too long, not JSON,
    unknown, missing or repeated keys, wrong types, values that are not finite or out of range, too many rows."""
    if len(text) > MAX_JSON_BYTES:
        raise ValueError(f"the score table has {len(text)} characters, at most {MAX_JSON_BYTES} are read")
    try:
        document = json.loads(text, object_pairs_hook=_unique)
    except RecursionError as error:
        raise ValueError("the score table is nested too deeply") from error
    if isinstance(document, dict) and document.get("version", _VERSION) != _VERSION:
        raise ValueError(f"the score table has version {document['version']!r:.60}, this program reads {_VERSION}")
    _keys(document, {"version", "round", "nothing", "rows"}, "the score table")
    last = _whole(document["round"], "round")
    if not isinstance(document["rows"], dict) or len(document["rows"]) > MAX_ROWS:
        raise ValueError(f"rows must be a table of at most {MAX_ROWS} hotkeys")
    rows = {hotkey: _row(entry, hotkey, last) for hotkey, entry in document["rows"].items()}
    return ScoreTable(rows, last, _rating(document["nothing"], "nothing"))


def _row(entry: Any, hotkey: str, last: int) -> Row:
    _keys(entry, {"rating", *_AVERAGES, "trained", "last_round", "barred_until"}, hotkey)
    averages = {name: _average(entry[name], f"{hotkey}.{name}") for name in _AVERAGES}
    odds, seen = entry["trained"], _whole(entry["last_round"], f"{hotkey}.last_round")
    barred = _whole(entry["barred_until"], f"{hotkey}.barred_until")
    if type(odds) not in (int, float) or not abs(odds) <= SURE:
        raise ValueError(f"{hotkey}.trained must be a number within +-{SURE}, got {odds!r:.60}")
    if seen > last:
        raise ValueError(f"{hotkey}.last_round is {seen}, after the table's round {last}")
    return Row(_rating(entry["rating"], f"{hotkey}.rating"), **averages, trained=float(odds), last_round=seen,
               barred_until=barred)  # fmt: skip


def _rating(value: Any, where: str) -> Rating:
    mu, sigma = _pair(value, where)
    if sigma <= 0:
        raise ValueError(f"{where} must have a sigma above 0, got {sigma}")
    return Rating(mu, sigma)


def _average(value: Any, where: str) -> Average:
    total, weight = _pair(value, where)
    if not 0 <= total <= weight + 1e-9 or weight > 1 + 1e-9:
        raise ValueError(f"{where} must satisfy 0 <= total <= weight <= 1, got {total}, {weight}")
    return Average(total, weight)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("the score table repeats a key")
    return table


def _keys(value: Any, expected: set[str], where: str) -> None:
    if not isinstance(value, dict) or value.keys() != expected:
        raise ValueError(f"{where} must be a table of exactly {', '.join(sorted(expected))}")


def _whole(value: Any, where: str) -> int:
    if type(value) is not int or not -1 <= value < 2**63:
        raise ValueError(f"{where} must be a whole number from -1, got {value!r:.60}")
    return value


def _pair(value: Any, where: str) -> tuple[float, float]:
    if not isinstance(value, list) or len(value) != 2 or not all(type(number) in (int, float) for number in value):
        raise ValueError(f"{where} must be a list of two numbers")
    first, second = (float(number) if abs(number) < 2**63 else math.inf for number in value)
    if not (math.isfinite(first) and math.isfinite(second)):
        raise ValueError(f"{where} must hold two finite numbers, got {value!r:.60}")
    return first, second

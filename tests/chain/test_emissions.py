"""The earnings table: who is what, and what it makes per day."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from subnet.chain.emissions import render, summarize
from subnet.chain.metagraph import Metagraph, Row

OWNER = Row(0, "O", "C", 9.0, 0.0, 0.0, 0.0, True, 5, 5, None)
VALIDATOR = Row(1, "V", "D", 7.0, 0.0, 1.0, 4.0, True, 90, 6, None)
MINER = Row(2, "M", "D", 1.0, 1.0, 0.0, 5.0, False, 7, 7, None)
GRAPH = Metagraph(2, 100, 360, 80, "O", "C", (OWNER, VALIDATOR, MINER))


def test_roles_rates_and_order() -> None:
    earnings = summarize([GRAPH], "local", 12.0)
    miner, validator, owner = earnings.rows
    assert [row.role for row in earnings.rows] == ["miner", "validator", "owner"]
    assert miner.per_day == pytest.approx(5.0 * 20) and miner.weights_set is None
    assert validator.weights_set == 90 and owner.weights_set is None and owner.link is None


@pytest.mark.parametrize(
    ("changes", "role"),
    [
        ({}, "miner"),
        ({"permit": True}, "miner"),
        ({"dividends": 0.1}, "both"),
        ({"incentive": 0.0}, "-"),
        ({"incentive": 0.0, "permit": True}, "-"),
        ({"incentive": 0.0, "last_update": 90}, "validator"),
        ({"incentive": 0.0, "hotkey": "O"}, "owner"),
    ],
)
def test_role(changes: dict[str, object], role: str) -> None:
    graph = replace(GRAPH, rows=(replace(MINER, **changes),))  # type: ignore[arg-type]
    assert summarize([graph], "local", 12.0).rows[0].role == role


def test_the_owner_is_not_paid_as_a_miner() -> None:
    shares = {"incentive": 0.25, "dividends": 0.75, "emission": 8.0}
    owner, other = replace(OWNER, **shares), replace(MINER, **shares)  # type: ignore[arg-type]
    same_coldkey = replace(MINER, uid=3, hotkey="M2", coldkey="C", **shares)  # type: ignore[arg-type]
    rows = summarize([replace(GRAPH, rows=(owner, other, same_coldkey))], "local", 12.0).rows
    assert {row.hotkey: row.emission for row in rows} == {"O": 6.0, "M": 8.0, "M2": 6.0}


def test_history_follows_the_hotkey() -> None:
    before = replace(GRAPH, rows=(OWNER, replace(MINER, uid=1, emission=2.0)))
    earned = {row.hotkey: row.earned for row in summarize([GRAPH, before], "finney", 12.0).rows}
    assert earned == {"O": 0.0, "V": 4.0, "M": 7.0}


def test_links_only_where_an_explorer_looks() -> None:
    assert summarize([GRAPH], "finney", 12.0).rows[0].link == "https://taostats.io/hotkey/M"


def test_render() -> None:
    hotkey = "5GrwvaEF5zXb26Fz9rcQpDWS57CtERHpNehXCPcNoHGKutQY"
    graph = replace(GRAPH, rows=(OWNER, VALIDATOR, replace(MINER, hotkey=hotkey)))

    def text(width: int, epochs: int) -> str:
        out = io.StringIO()
        render(summarize([graph] * epochs, "local", 0.25), Console(file=out, width=width))
        return out.getvalue()

    narrow, wide = text(80, 1), text(160, 2)
    assert "Subnet 2 on local, block 100" in narrow and "5Grwv…tQY" in narrow and hotkey in wide
    assert f"uid   2  {hotkey}" in narrow
    assert "4,800.0" in narrow, "5 alpha each 90 s"
    assert " 10 " in narrow and "never" in narrow
    assert "earned in 2 epochs" in wide and "10.00" in wide and "earned" not in narrow
    assert max(map(len, narrow.splitlines())) <= 80

"""What stops a neuron from starting, by the metagraph alone; each message names the command that helps."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from subnet.chain.metagraph import Metagraph, Row
from subnet.chain.preflight import MINER, VALIDATOR, check
from subnet.errors import UserError

ROW = Row(0, "H", "C", 5.0, 0.0, 0.0, 0.0, False, 1, 1, None)
GRAPH = Metagraph(2, 100, 20, 80, "OWNER", "C", (ROW,))
FLAGS = "-w cold -H hot --network local"


def graph(**changes: object) -> Metagraph:
    return replace(GRAPH, rows=(replace(ROW, **changes),))  # type: ignore[arg-type]


def test_unregistered() -> None:
    with pytest.raises(UserError, match=f"not registered on subnet 2.*btcli tx burned-register --netuid 2 {FLAGS}`"):
        check(GRAPH, "X", MINER, FLAGS)


def test_a_miner_needs_no_stake() -> None:
    check(graph(stake=0.0), "H", MINER, FLAGS)


def test_validator_without_stake() -> None:
    with pytest.raises(UserError, match=r"has no stake on subnet 2.*btcli tx add-stake --netuid 2 --hotkey H"):
        check(graph(stake=0.0), "H", VALIDATOR, FLAGS)


def test_validator_without_permit_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        check(GRAPH, "H", VALIDATOR, FLAGS)
    assert "no permit yet" in caplog.text and "every 20 blocks" in caplog.text


def test_permit_or_ownership_suffices(caplog: pytest.LogCaptureFixture) -> None:
    check(graph(permit=True), "H", VALIDATOR, FLAGS)
    check(replace(graph(stake=0.0), owner_hotkey="H"), "H", VALIDATOR, FLAGS)
    assert caplog.text == ""

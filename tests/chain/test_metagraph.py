"""The metagraph's shape, and commitments, whose content is anybody's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subnet.chain.metagraph import build, commitment_fields, committed_bytes

GRAPH = {
    "block": 77,
    "tempo": 20,
    "last_step": 60,
    "owner_hotkey": "A",
    "owner_coldkey": "C",
    "hotkeys": ["A", "B"],
    "coldkeys": ["C", "D"],
    "total_stake": [2_500_000_000, 0],
    "incentives": [0, 65535],
    "dividends": [65535, 0],
    "emission": [3_000_000_000, 1],
    "validator_permit": [True, False],
    "last_update": [70, 8],
    "block_at_registration": [5, 8],
}


def record(data: bytes) -> dict[str, object]:
    return {"deposit": 0, "block": 3, "info": commitment_fields(data)}


def test_build() -> None:
    graph = build(2, GRAPH, [None, record(b"hello")])
    owner, miner = graph.rows
    assert (graph.netuid, graph.block, graph.tempo, graph.last_epoch) == (2, 77, 20, 60)
    assert (owner.stake, owner.dividends, owner.emission, owner.permit) == (2.5, 1.0, 3.0, True)
    assert (miner.uid, miner.incentive, miner.commitment, miner.last_update) == (1, 1.0, b"hello", 8)
    assert graph.by_hotkey["B"] is miner and graph.uid_of("B") == 1 and graph.uid_of("X") is None


@given(st.binary(max_size=128))
def test_commitment_round_trip(data: bytes) -> None:
    assert committed_bytes(record(data)) == data


def test_commitment_is_bounded() -> None:
    with pytest.raises(ValueError, match="at most 128 bytes, got 129"):
        commitment_fields(bytes(129))


@pytest.mark.parametrize(
    "fields",
    [
        [],
        ["None"],
        [{"Sha256": "0x" + "00" * 32}],
        [{"TimelockEncrypted": {"encrypted": "0x00", "reveal_round": 7}}],
        [{"Raw1": "0x00"}, {"Raw1": "0x01"}],
        [{"BigRaw": "0x" + "00" * 200}],
        [{"Raw129": "0x" + "00" * 129}],
    ],
)
def test_other_commitments_are_no_bytes(fields: list[object]) -> None:
    assert committed_bytes({"info": {"fields": fields}}) is None
    assert committed_bytes(None) is None

"""Commitments: who may, how much, how often."""

from __future__ import annotations

from typing import Any

from tests.localnet.conftest import Net


def commit(net: Net, fields: list[Any], who: str = "a_hot", netuid: int = 2) -> str | None:
    return net.do(who, "Commitments", "set_commitment", netuid=netuid, info={"fields": fields}).error


def raw(data: bytes) -> dict[str, bytes]:
    return {f"Raw{len(data)}": data}


def test_a_registered_hotkey_commits_for_nothing_and_the_last_word_counts(net: Net) -> None:
    net.register(net.subnet(), "a")
    assert commit(net, [raw(b"first")]) is None
    assert commit(net, [raw(b"\x00second\xff"), raw(b"x" * 128)]) is None
    stored = net.get("CommitmentOf", 2, net.address("a_hot"), pallet="Commitments")
    assert stored["info"]["fields"] == [
        {"Raw8": "0x00" + b"second".hex() + "ff"},
        {"Raw128": "0x" + (b"x" * 128).hex()},
    ]
    assert stored["block"] == net.chain.head.number


def test_refusals(net: Net) -> None:
    net.register(net.subnet(), "a")
    assert commit(net, [raw(b"hello")], who="stranger") == "AccountNotAllowedCommit"
    assert commit(net, [raw(b"a")] * 4) == "TooManyFieldsInCommitmentInfo"
    assert commit(net, [{"BigRaw": b"x" * 513}]) == "SpaceLimitExceeded"
    assert commit(net, [{"BigRaw": b"x" * 512}]) is None


def test_space_is_limited_per_epoch(net: Net) -> None:
    net.register(net.subnet(), "a")
    net.sudo("Commitments", "set_max_space", new_limit=250)
    net.do("owner", "SubtensorModule", "set_tempo", netuid=2, tempo=20)
    assert [commit(net, [raw(b"x")]) for _ in range(3)] == [None, None, "SpaceLimitExceeded"]
    net.produce(20)
    assert commit(net, [raw(b"x" * 128)]) is None
    assert commit(net, [raw(b"x" * 128)]) == "SpaceLimitExceeded"


def test_a_reset_flag_forgets_bonds_where_the_subnet_lets_it(net: Net) -> None:
    net.register(net.subnet(), "a", "b")
    net.do("owner", "SubtensorModule", "set_tempo", netuid=2, tempo=100)
    net.chain.ledger.put("SubtensorModule", "Bonds", (2, 1), [(2, 500), (0, 7)])
    assert commit(net, ["ResetBondsFlag"], who="b_hot") is None
    assert [tuple(bond) for bond in net.get("Bonds", 2, 1)] == [(2, 500), (0, 7)]
    net.sudo("AdminUtils", "sudo_set_bonds_reset_enabled", netuid=2, enabled=True)
    assert commit(net, ["ResetBondsFlag"], who="b_hot") is None
    assert [tuple(bond) for bond in net.get("Bonds", 2, 1)] == [(2, 0), (0, 7)]

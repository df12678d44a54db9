"""The pool: order, replacement, bounds, and what watchers are told."""

from __future__ import annotations

from typing import Any

import pytest

from subnet.localnet import mempool
from subnet.localnet.extrinsic import Extrinsic, Invalid
from subnet.localnet.mempool import Mempool

CALL: dict[str, Any] = {"call_module": "System", "call_function": "remark", "call_args": []}


def extrinsic(signer: str, nonce: int, tip: int = 0) -> Extrinsic:
    identity = f"{signer}{nonce}{tip}".encode().ljust(32)
    return Extrinsic(identity, identity, signer, 1, b"", None, nonce, tip, False, b"", b"", CALL)


class Pool(Mempool):
    """A pool over nonces kept here, which notes what watchers hear."""

    def __init__(self) -> None:
        self.nonces: dict[str, int] = {}
        self.heard: list[tuple[str, Any]] = []
        super().__init__(lambda account: self.nonces.get(account, 0))

    def take(self, signer: str, nonce: int, tip: int = 0) -> None:
        label = f"{signer}{nonce}"
        self.add(extrinsic(signer, nonce, tip), 1, lambda status: self.heard.append((label, status)))

    def include(self) -> list[str]:
        """Includes everything that is ready; in which order."""
        order = []
        for pooled in self.ready():
            item = pooled.extrinsic
            order.append(f"{item.signer}{item.nonce}")
            self.nonces[item.signer] = item.nonce + 1
        return order


def test_an_account_goes_in_nonce_order_whatever_arrives_first() -> None:
    pool = Pool()
    for nonce in (2, 0, 1):
        pool.take("a", nonce)
    assert [status for _, status in pool.heard] == ["future", "ready", "ready"]
    assert pool.next_index("a") == 3
    assert pool.include() == ["a0", "a1", "a2"]


def test_a_gap_holds_back_what_is_behind_it() -> None:
    pool = Pool()
    pool.take("a", 0)
    pool.take("a", 2)
    assert pool.next_index("a") == 1 and pool.include() == ["a0"]


def test_tips_go_first_then_arrival() -> None:
    pool = Pool()
    pool.take("a", 0)
    pool.take("b", 0, tip=5)
    pool.take("c", 0)
    pool.take("a", 1, tip=9)
    assert pool.include() == ["b0", "a0", "a1", "c0"]


def test_a_refused_extrinsic_does_not_open_the_way_for_the_next() -> None:
    pool = Pool()
    pool.take("a", 0)
    pool.take("a", 1)
    assert [pooled.extrinsic.nonce for pooled in pool.ready()] == [0]


def test_a_higher_tip_replaces_and_a_lower_does_not() -> None:
    pool = Pool()
    pool.take("a", 0, tip=2)
    with pytest.raises(Invalid) as refusal:
        pool.take("a", 0, tip=1)
    assert refusal.value.code == 1014
    with pytest.raises(Invalid) as refusal:
        pool.take("a", 0, tip=2)
    assert refusal.value.code == 1013
    pool.take("a", 0, tip=3)
    assert len(pool) == 1 and [item.tip for item in pool] == [3]
    assert pool.heard[1] == ("a0", {"usurped": "0x" + extrinsic("a", 0, 3).hash.hex()})


def test_the_pool_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mempool, "MAX_POOLED", 2)
    pool = Pool()
    pool.take("a", 0)
    pool.take("b", 0)
    with pytest.raises(Invalid) as refusal:
        pool.take("c", 0)
    assert refusal.value.code == 1016
    pool.take("b", 0, tip=1)


def test_overtaken_and_outlived_extrinsics_are_dropped_and_told() -> None:
    pool = Pool()
    pool.take("a", 0)
    pool.take("a", 1)
    pool.nonces["a"] = 1
    pool.prune(2)
    assert ("a0", "invalid") in pool.heard and pool.next_index("a") == 2
    pool.prune(mempool.NEVER)
    assert len(pool) == 0 and pool.heard[-1] == ("a1", "invalid")


def test_an_unwatched_extrinsic_stays_but_is_not_reported() -> None:
    pool = Pool()
    statuses: list[Any] = []
    pool.add(extrinsic("a", 0), 1, statuses.append)
    pool.unwatch(statuses.append)
    pool.prune(mempool.NEVER)
    assert statuses == ["ready"]

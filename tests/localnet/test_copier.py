"""What commit-reveal is for, on the chain itself: who copies the weights that it can see is paid less for old ones.

Real extrinsics, epochs and stake; only the miners' worth is drawn: it changes by about a third from tempo to tempo.
"""

from __future__ import annotations

import numpy as np

from subnet.localnet.pallets.weights import U16_MAX, hash_weights
from tests.localnet.conftest import Net, key

HONEST = ("v1", "v2", "v3", "v4")
LAZY = "lazy"
VALIDATORS = (*HONEST, LAZY)
MINERS = ("m1", "m2", "m3", "m4", "m5")
TEMPOS = 20
CHANGE = 0.3
"""Standard deviation of the logarithm of a miner's worth from one tempo to the next."""

Row = list[tuple[int, int]]


class Town:
    def __init__(self, net: Net, hidden: bool) -> None:
        self.net = net
        self.netuid = net.subnet()
        net.sudo("AdminUtils", "sudo_set_weights_set_rate_limit", netuid=self.netuid, weights_set_rate_limit=0)
        net.register(self.netuid, *VALIDATORS, *MINERS)
        for name in VALIDATORS:
            net.stake(name, self.netuid, 20)
        net.sudo("AdminUtils", "sudo_set_commit_reveal_weights_enabled", netuid=self.netuid, enabled=hidden)
        net.next_epoch(self.netuid)
        self.committed: dict[str, Row] = {}

    def uid(self, name: str) -> int:
        return int(self.net.get("Uids", self.netuid, self.net.address(f"{name}_hot")))

    def shown(self) -> Row:
        """What anybody can read of an honest validator's weights."""
        return [(uid, value) for uid, value in self.net.get("Weights", self.netuid, self.uid(HONEST[0]))]

    def send(self, name: str, call: str, **arguments: object) -> None:
        composed = self.net.compose("SubtensorModule", call, netuid=self.netuid, **arguments)
        self.net.chain.submit(self.net.sign(key(f"{name}_hot"), composed))

    def settle(self) -> None:
        self.net.produce()
        assert [done.error for done in self.net.outcomes()] == [None] * len(self.net.outcomes())

    def set(self, name: str, row: Row) -> None:
        uids, values = zip(*row, strict=True)
        self.send(name, "set_weights", dests=uids, weights=values, version_key=0)

    def commit(self, name: str, row: Row) -> None:
        uids, values = zip(*row, strict=True)
        hashed = hash_weights(self.net.address(f"{name}_hot"), self.netuid, list(uids), list(values), [7], 0)
        self.send(name, "commit_weights", commit_hash=hashed)
        self.committed[name] = row

    def reveal(self) -> None:
        for name, row in self.committed.items():
            uids, values = zip(*row, strict=True)
            self.send(name, "reveal_weights", uids=uids, values=values, salt=[7], version_key=0)
        self.committed = {}
        self.settle()

    def stake(self, name: str) -> int:
        return int(self.net.get("TotalHotkeyAlpha", self.net.address(f"{name}_hot"), self.netuid))


def share_of_the_lazy(net: Net, hidden: bool) -> float:
    """What the copier's stake grows by in a season, over what an honest validator's does on average."""
    town, worth, rng = Town(net, hidden), np.ones(len(MINERS)), np.random.default_rng(5)
    miners = [town.uid(name) for name in MINERS]
    before: dict[str, int] = {}
    for tempo in range(TEMPOS):
        worth = worth * np.exp(rng.normal(0, CHANGE, len(MINERS)))
        row = [(uid, round(value)) for uid, value in zip(miners, worth / worth.max() * U16_MAX, strict=True)]
        if hidden:
            town.reveal()
            for name in HONEST:
                town.commit(name, row)
            if town.shown():
                town.commit(LAZY, town.shown())
        else:
            for name in HONEST:
                town.set(name, row)
            town.settle()
            town.set(LAZY, town.shown())
        town.settle()
        if tempo == 2:  # everybody's first weights count by now
            before = {name: town.stake(name) for name in VALIDATORS}
        net.next_epoch(town.netuid)
    gains = {name: town.stake(name) / before[name] - 1 for name in VALIDATORS}
    return gains[LAZY] / (sum(gains[name] for name in HONEST) / len(HONEST))


def test_a_copier_earns_what_the_copied_earn_while_weights_are_public(net: Net) -> None:
    assert abs(share_of_the_lazy(net, hidden=False) - 1) < 0.01


def test_a_copier_of_the_last_tempos_weights_earns_less_once_they_are_hidden(net: Net) -> None:
    assert share_of_the_lazy(net, hidden=True) < 0.85

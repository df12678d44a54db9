"""Consensus against a real, older runtime: the same neurons, stakes and signed weights in both, epoch by epoch.

The runtime is of June 2024 (spec 186 or so): stake is TAO, owners have no privileges, bonds follow the older rule, and
a subnet of tempo n has an epoch every n + 1 blocks. So the embedded chain's subnets here have no registered owner and
the older bond rule, and before every epoch the oracle is given the stakes and the emission that the embedded chain has
come to by its own economy. Weights, permits and bonds are each chain's own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from subnet.localnet.consensus import emission
from subnet.localnet.consensus.yuma import stake_weights
from subnet.localnet.dispatch import Rules
from subnet.localnet.epoch import alpha_issuance
from subnet.localnet.pallets import stake
from subnet.localnet.schedule import activity_cutoff
from subnet.localnet.store import Store
from tests.localnet.conftest import Net, key
from tests.localnet.oracle import Oracle

ENDPOINT = "SN38_ORACLE"
PERIOD = 6
"""Blocks from one epoch to the next."""
SCENARIOS, EPOCHS = 60, 3
U16_MAX = 0xFFFF
ALPHA = 10**9
"""rao a subnet emits per block."""
EMISSION_RAO = 8
"""rao by which a neuron's emission of some 10^9 may differ."""
FIELDS = ("Incentive", "Dividends", "Consensus", "ValidatorTrust", "Emission")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(ENDPOINT not in os.environ, reason=f"{ENDPOINT} names no oracle (docs/localnet.md)"),
]


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    connected = Oracle(os.environ[ENDPOINT])
    yield connected
    connected.close()


@dataclass(frozen=True)
class Subnet:
    """One subnet in both chains."""

    net: Net
    oracle: Oracle
    names: list[str]
    """By uid."""
    ours: int
    """netuid in the embedded chain"""
    theirs: int
    """netuid in the oracle, whose epochs it decides"""

    def set_weights(self, uid: int, targets: list[int], values: list[int]) -> None:
        """Signed by the same key for both, into the next block of each."""
        signer = key(f"{self.names[uid]}_hot")
        call = {"dests": targets, "weights": values, "version_key": 0}
        composed = self.net.compose("SubtensorModule", "set_weights", netuid=self.ours, **call)
        self.net.chain.submit(self.net.sign(signer, composed))
        self.oracle.submit(signer, "SubtensorModule", "set_weights", netuid=self.theirs, **call)

    def produce(self) -> None:
        self.net.produce()
        self.oracle.produce(self.net.chain.head.number)

    def run_epoch(self) -> None:
        last = self.net.get("LastEpochBlock", self.ours)
        self.net.produce(last + PERIOD - 1 - self.net.chain.head.number)
        self._give_stakes_and_emission()
        self.produce()
        assert self.net.get("LastEpochBlock", self.ours) == last + PERIOD

    def register_again(self, uid: int) -> None:
        """Makes the uid one that was registered just now: weights set before count no more."""
        now = self.net.chain.head.number
        for ledger, netuid in ((self.net.chain.ledger, self.ours), (self.oracle.ledger, self.theirs)):
            ledger.put("SubtensorModule", "BlockAtRegistration", (netuid, uid), now)
        self.oracle.write()

    def _give_stakes_and_emission(self) -> None:
        """What the embedded chain's next epoch will find."""
        sub = self.net.chain.ledger.pallet("SubtensorModule")
        hotkeys = [self.net.address(f"{name}_hot") for name in self.names]
        alpha, root = ([stake.on_hotkey(sub, hotkey, netuid) for hotkey in hotkeys] for netuid in (self.ours, 0))
        put = self.oracle.ledger.pallet("SubtensorModule").put
        for hotkey, weight in zip(hotkeys, stake_weights(alpha, root, sub.get("TaoWeight")), strict=True):
            put("TotalHotkeyStake", hotkey, weight >> 32)
        pending = emission.Pending(
            miners=sub.get("PendingServerEmission", self.ours),
            validators=sub.get("PendingValidatorEmission", self.ours),
        )
        share = emission.root_proportion(sub.get("SubnetTAO", 0), sub.get("TaoWeight"), alpha_issuance(sub, self.ours))
        accrued = emission.accrue(pending, ALPHA, sub.get("SubnetOwnerCut"), share)
        put("PendingEmission", self.theirs, accrued.miners + accrued.validators)
        self.oracle.write()


def build(oracle: Oracle, rng: np.random.Generator) -> Subnet:
    """Neurons and stakes by extrinsics in the embedded chain; the oracle gets the state that follows."""
    net = Net(Store(None), Rules(tempo=PERIOD, weights_rate_limit=1))
    netuid = net.subnet()
    names = ["owner", *(f"n{uid}" for uid in range(1, int(rng.choice([4, 8, 12, 24]))))]
    net.register(netuid, *names[1:])
    for name in names:
        if rng.random() < 0.7:
            net.stake(name, netuid, int(np.exp(rng.uniform(0, 6))))
    net.fund("nominator")
    net.stake("nominator", netuid, int(rng.integers(1, 200)), f"{rng.choice(names)}_hot")
    if rng.random() < 0.5:
        net.stake("nominator", 0, int(rng.integers(1, 1000)), f"{rng.choice(names)}_hot")
    for name, value in {
        "yuma3_enabled": {"enabled": False},
        "kappa": {"kappa": int(rng.choice([20_000, 32_767, 45_000]))},
        "bonds_moving_average": {"bonds_moving_average": int(rng.choice([0, 500_000, 900_000]))},
        "max_allowed_validators": {"max_allowed_validators": int(rng.choice([2, 4, 64]))},
    }.items():
        assert net.sudo("AdminUtils", f"sudo_set_{name}", netuid=netuid, **value) == {"Ok": ()}, name
    put = net.chain.ledger.pallet("SubtensorModule").put
    put("SubnetOwner", netuid, net.address("nobody"))
    put("SubnetOwnerHotkey", netuid, net.address("nobody"))
    put("ActivityCutoffFactorMilli", netuid, int(rng.choice([1_500, 50_000])))
    net.next_epoch(netuid)
    subnet = Subnet(net, oracle, names, netuid, theirs=2 + -(net.get("LastEpochBlock", netuid) + 4) % PERIOD)
    _seed(subnet)
    return subnet


def _seed(subnet: Subnet) -> None:
    net, ours, theirs = subnet.net, subnet.ours, subnet.theirs
    subnet.oracle.rewind()
    subnet.oracle.produce(net.chain.head.number)
    put = subnet.oracle.ledger.pallet("SubtensorModule").put
    for item in (
        "Kappa",
        "BondsMovingAverage",
        "MaxAllowedValidators",
        "MinAllowedWeights",
        "MaxWeightsLimit",
        "SubnetworkN",
        "WeightsSetRateLimit",
        "LastUpdate",
        "ValidatorPermit",
    ):
        put(item, theirs, net.get(item, ours))
    put("Tempo", theirs, PERIOD - 1)
    put("ActivityCutoff", theirs, activity_cutoff(net.chain.ledger.pallet("SubtensorModule"), ours))
    put("NetworksAdded", theirs, True)
    put("NetworkRegistrationAllowed", theirs, True)
    for uid, name in enumerate(subnet.names):
        hotkey = net.address(f"{name}_hot")
        put("Keys", theirs, uid, hotkey)
        put("Uids", theirs, hotkey, uid)
        put("IsNetworkMember", hotkey, theirs, True)
        put("BlockAtRegistration", theirs, uid, net.get("BlockAtRegistration", ours, uid))
        put("Owner", hotkey, net.address(name))
        free = {"free": 10**12, "reserved": 0, "frozen": 0, "flags": 1 << 127}
        account = {"nonce": 0, "consumers": 0, "providers": 1, "sufficients": 0, "data": free}
        subnet.oracle.ledger.put("System", "Account", (hotkey,), account)
    subnet.oracle.write()


def differences(subnet: Subnet) -> dict[str, int]:
    """By field, the largest difference of any neuron, in the field's own unit (u16, or rao)."""
    return {
        field: max(
            abs(a - b)
            for a, b in zip(subnet.net.get(field, subnet.ours), subnet.oracle.get(field, subnet.theirs), strict=True)
        )
        for field in FIELDS
    }


def play(subnet: Subnet, rng: np.random.Generator) -> list[dict[str, int]]:
    """Epochs in which validators set random weights, or none; the differences after each."""
    found = []
    for _ in range(EPOCHS):
        permits = subnet.net.get("ValidatorPermit", subnet.ours)
        if rng.random() < 0.3 and not subnet.net.get("BondsMovingAverage", subnet.ours):
            subnet.register_again(int(rng.integers(len(permits))))
        for uid, permit in enumerate(permits):
            if permit and rng.random() < 0.7:
                targets = rng.permutation(len(permits))[: rng.integers(1, len(permits) + 1)].tolist()
                subnet.set_weights(uid, targets, rng.integers(1, int(rng.choice([9, U16_MAX])), len(targets)).tolist())
        subnet.produce()
        subnet.run_epoch()
        found.append(differences(subnet))
    return found


def test_every_neuron_earns_what_a_real_runtime_gives_it(oracle: Oracle, capsys: pytest.CaptureFixture[str]) -> None:
    found, neurons, paid = [], 0, 0
    for seed in range(SCENARIOS):
        rng = np.random.default_rng(seed)
        subnet = build(oracle, rng)
        found += play(subnet, rng)
        neurons += len(subnet.names)
        paid += any(subnet.net.get("Incentive", subnet.ours))
    largest = {field: max(difference[field] for difference in found) for field in FIELDS}
    with capsys.disabled():
        print(json.dumps({"scenarios": SCENARIOS, "epochs": len(found), "neurons": neurons, "largest": largest}))
    assert paid > SCENARIOS / 2, "most scenarios must end with miners that earn"
    # The oracle is given the emission as one sum, of which root's share was taken block by block here.
    assert largest.pop("Emission") <= EMISSION_RAO
    assert not any(largest.values())

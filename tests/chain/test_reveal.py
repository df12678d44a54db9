"""The hash of a commit, and whether a chain hears the beacon. The calls are tested where they are used."""

from __future__ import annotations

import bittensor as bt
import pytest

from subnet.chain.reveal import BEACON_SILENCE, Sealed, hears_beacon
from subnet.localnet.pallets.weights import hash_weights
from tests.conftest import dev


@pytest.mark.parametrize("count", [0, 1, 63, 64, 256])
def test_the_hash_is_the_chains(count: int) -> None:
    uids, values, salt = tuple(range(count)), tuple(range(65535, 65535 - count, -1)), (0, 256, 65535)
    who = dev("alice").hotkey_ss58
    digest = Sealed(uids, values, salt, 2**63).digest(513, who)
    assert "0x" + digest.hex() == hash_weights(who, 513, list(uids), list(values), list(salt), 2**63)


def test_a_chain_hears_the_beacon_while_its_newest_round_is_recent() -> None:
    round_ = 10_000_000
    published = bt.timelock.reveal_time(round_).timestamp()
    assert hears_beacon(round_, published) and hears_beacon(round_, published + BEACON_SILENCE - 1)
    assert not hears_beacon(round_, published + BEACON_SILENCE) and not hears_beacon(0, published)

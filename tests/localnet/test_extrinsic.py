"""What may enter the chain: an extrinsic that is wrong in any way is refused in a node's words, and changes nothing."""

from __future__ import annotations

import pytest
from bittensor_core import metadata_digest
from hypothesis import given, settings
from hypothesis import strategies as st

from subnet.localnet.extrinsic import (
    ANCIENT,
    BAD_PROOF,
    FUTURE,
    MAX_AHEAD,
    MAX_BYTES,
    PAYMENT,
    STALE,
    Era,
    Invalid,
    parse,
)
from subnet.localnet.metadata import SPEC_NAME, SPEC_VERSION, runtime
from subnet.localnet.metadata.scale import compact
from tests.localnet.conftest import PERIOD, Net, key


def transfer(net: Net, to: str = "bob", value: int = 10**9) -> bytes:
    return net.compose("Balances", "transfer_keep_alive", dest=net.address(to), value=value)


def refused(net: Net, raw: bytes) -> Invalid:
    root, waiting = net.chain.state.root, len(net.chain.mempool)
    with pytest.raises(Invalid) as refusal:
        net.chain.submit(raw)
    assert net.chain.state.root == root and len(net.chain.mempool) == waiting
    return refusal.value


def test_an_honest_extrinsic_is_included(net: Net) -> None:
    net.chain.submit(net.sign(key("Alice"), transfer(net)))
    net.produce()
    assert net.free("bob") == 10**9


def test_ed25519_signs_too(net: Net) -> None:
    signer = key("Edward", 0)
    net.sudo("Balances", "force_set_balance", who=signer.ss58_address, new_free=10**10)
    net.chain.submit(net.sign(signer, transfer(net)))
    net.produce()
    assert net.free("bob") == 10**9


@pytest.mark.parametrize(
    "wrong",
    [
        {"genesis_hash": b"\1" * 32},
        {"era_block_hash": b"\1" * 32},
    ],
)
def test_an_extrinsic_of_another_chain_has_a_bad_signature(net: Net, wrong: dict) -> None:
    refusal = refused(net, net.sign(key("Alice"), transfer(net), **wrong))
    assert (refusal.code, refusal.detail) == (1010, BAD_PROOF)


def test_every_flipped_bit_of_the_signed_part_is_refused(net: Net) -> None:
    raw = net.sign(key("Alice"), transfer(net))
    for at in range(40, len(raw), 7):
        refusal = refused(net, raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :])
        assert refusal.code in (1002, 1010)


def test_a_forged_signer_is_refused(net: Net) -> None:
    raw = net.sign(key("mallory"), transfer(net))
    forged = raw.replace(bytes(key("mallory").public_key), bytes(key("Alice").public_key), 1)
    assert refused(net, forged).detail == BAD_PROOF


def test_used_and_distant_nonces_are_refused(net: Net) -> None:
    net.do("Alice", "System", "remark", remark=b"")
    assert refused(net, net.sign(key("Alice"), transfer(net), nonce=0)).detail == STALE
    assert refused(net, net.sign(key("Alice"), transfer(net), nonce=1 + MAX_AHEAD)).detail == FUTURE


def test_a_mortal_extrinsic_dies(net: Net) -> None:
    raw = net.sign(key("Alice"), transfer(net))
    net.produce(PERIOD)
    assert refused(net, raw).detail == ANCIENT
    net.produce(PERIOD)
    assert refused(net, raw).detail == BAD_PROOF


def test_an_immortal_extrinsic_does_not(net: Net) -> None:
    raw = net.sign(key("Alice"), transfer(net), era="00", era_block_hash=net.chain.genesis)
    net.produce(2 * PERIOD)
    net.chain.submit(raw)


def test_who_cannot_pay_is_refused_unless_the_call_is_free(net: Net) -> None:
    refusal = refused(net, net.sign(key("pauper"), transfer(net)))
    assert (refusal.code, refusal.detail) == (1010, PAYMENT)
    rate = {"netuid": 1, "dests": [0], "weights": [1], "version_key": 0}
    assert net.do("pauper", "SubtensorModule", "set_weights", **rate).error == "HotKeyNotRegisteredInSubNet"
    assert refused(net, net.sign(key("pauper"), net.compose("System", "remark", remark=b""), tip=5)).detail == PAYMENT


def test_the_fee_is_taken_even_if_the_call_is_refused(net: Net) -> None:
    before = net.free("Alice")
    done = net.do("Alice", "Balances", "transfer_keep_alive", dest=net.address("bob"), value=before)
    assert done.error == "FundsUnavailable"
    paid = done.event("TransactionFeePaid")["actual_fee"]
    assert paid > 0 and net.free("Alice") == before - paid and net.free("bob") == 0


def test_a_signed_metadata_digest_is_checked(net: Net) -> None:
    digest = bytes(metadata_digest(net.chain.runtime.v15, SPEC_VERSION, SPEC_NAME))
    assert refused(net, net.sign(key("Alice"), transfer(net), metadata_hash=b"\1" * 32)).detail == BAD_PROOF
    net.chain.submit(net.sign(key("Alice"), transfer(net), metadata_hash=digest))


def test_calls_that_do_not_decode_and_extrinsics_too_large_are_refused(net: Net) -> None:
    assert refused(net, net.sign(key("Alice"), b"\xff\xff")).code == 1002
    assert refused(net, b"\x00" * (MAX_BYTES + 1)).code == 1002
    nested = net.compose("System", "remark", remark=b"")
    deep = net.compose("Utility", "batch", calls=[nested])[:3] * 10_000 + nested
    assert refused(net, net.sign(key("Alice"), deep)).code == 1002


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.binary(max_size=200), st.binary(max_size=200).map(lambda body: compact(len(body)) + body)))
def test_noise_is_only_ever_refused(raw: bytes) -> None:
    with pytest.raises(Invalid):
        parse(raw, runtime())


@settings(max_examples=50, deadline=None)
@given(st.binary(min_size=1, max_size=150))
def test_noise_behind_a_valid_envelope_is_only_ever_refused_or_a_call(body: bytes) -> None:
    envelope = b"\x84\x00" + bytes(32) + b"\x01" + bytes(64) + b"\x00\x00\x00\x00" + body
    try:
        assert parse(compact(len(envelope)) + envelope, runtime()).call_data == body
    except Invalid as refusal:
        assert refusal.code == 1002


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 16), st.integers(0, 10**6), st.integers(0, 10**6))
def test_an_era_is_born_in_its_phase_within_a_period(exponent: int, phase: int, current: int) -> None:
    era = Era(2**exponent, phase % 2**exponent)
    birth = era.birth(current)
    assert birth % era.period == era.phase
    assert birth <= current < birth + era.period or (current < era.phase and birth == era.phase)

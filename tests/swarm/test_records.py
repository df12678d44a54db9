import math

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subnet.chain.keys import verify
from subnet.swarm.records import (
    MAX_RECORD_BYTES,
    BadRecord,
    dht_subkey,
    lease_signed,
    open_record,
    record_key,
    seal,
    sign_record,
    unseal,
)

from .conftest import KEYS, OTHER_RUN, RUN_ID

BODY = {"root": bytes(32), "norm": 1.25, "tokens": 4096, "steps": 8, "note": "x"}

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(max_size=20)
    | st.binary(max_size=40),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(st.dictionaries(st.text(max_size=12), values, max_size=6), st.integers(0, 2**48 - 1))
@settings(max_examples=60, deadline=None)
def test_what_is_signed_is_what_is_read(body: dict, round_: int) -> None:
    record = sign_record(KEYS[0], "commit", RUN_ID, round_, body)
    again = open_record(record.pack(), run_id=RUN_ID, verify=verify)
    assert again == record
    assert again.body == body


def test_the_statement_is_these_bytes() -> None:
    record = sign_record(KEYS[0], "part", RUN_ID, 258, {"part": 7, "norm": 0.5}, "7")
    assert record.pack()[:-64].hex() == (
        "96" + "a4" + b"part".hex() + "c420" + RUN_ID.hex() + "cd0102" + "a137" + "d930" + KEYS[0].ss58.encode().hex()
        + "82" + "a4" + b"part".hex() + "07" + "a4" + b"norm".hex() + "cb3fe0000000000000"
    )  # fmt: skip


def test_no_byte_may_change() -> None:
    data = sign_record(KEYS[0], "commit", RUN_ID, 7, BODY).pack()
    for at in range(len(data)):
        with pytest.raises(BadRecord):
            open_record(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], run_id=RUN_ID, verify=verify)
    with pytest.raises(BadRecord, match="another run"):
        open_record(data, run_id=OTHER_RUN, verify=verify)


@given(st.one_of(st.binary(max_size=400), st.binary(max_size=80).map(lambda b: b"\x96" + b)))
@settings(max_examples=150, deadline=None)
def test_records_of_strangers(data: bytes) -> None:
    with pytest.raises(BadRecord):
        open_record(data, run_id=RUN_ID, verify=verify)


@pytest.mark.parametrize(
    "fields",
    [
        ["commit", RUN_ID, 1, "", KEYS[0].ss58],
        ["gossip", RUN_ID, 1, "", KEYS[0].ss58, {}],
        [["commit"], RUN_ID, 1, "", KEYS[0].ss58, {}],
        ["commit", RUN_ID[:31], 1, "", KEYS[0].ss58, {}],
        ["commit", RUN_ID, -1, "", KEYS[0].ss58, {}],
        ["commit", RUN_ID, True, "", KEYS[0].ss58, {}],
        ["commit", RUN_ID, 2**48, "", KEYS[0].ss58, {}],
        ["commit", RUN_ID, 1.0, "", KEYS[0].ss58, {}],
        ["commit", RUN_ID, 1, "0", KEYS[0].ss58, {}],
        ["part", RUN_ID, 1, "", KEYS[0].ss58, {}],
        ["part", RUN_ID, 1, "00", KEYS[0].ss58, {}],
        ["part", RUN_ID, 1, "4096", KEYS[0].ss58, {}],
        ["part", RUN_ID, 1, "-1", KEYS[0].ss58, {}],
        ["commit", RUN_ID, 1, "", "not a hotkey", {}],
        ["commit", RUN_ID, 1, "", KEYS[0].ss58, [1]],
        ["commit", RUN_ID, 1, "", KEYS[0].ss58, {b"bytes": 1}],
        {"commit": 1},
        msgpack.ExtType(5, b"x"),
    ],
)
def test_fields_out_of_range_are_refused_before_the_signature(fields: object) -> None:
    with pytest.raises(BadRecord):
        open_record(msgpack.packb(fields) + bytes(64), run_id=RUN_ID, verify=lambda *_: True)


def test_another_encoding_of_the_same_fields_is_refused() -> None:
    fields = msgpack.packb(["commit", RUN_ID, 5, "", KEYS[0].ss58, {}], use_bin_type=True)
    assert open_record(fields + bytes(64), run_id=RUN_ID, verify=lambda *_: True).round == 5
    padded = fields.replace(b"\x05\xa0", b"\xcd\x00\x05\xa0")
    assert msgpack.unpackb(padded) == msgpack.unpackb(fields)
    with pytest.raises(BadRecord, match="encoding"):
        open_record(padded + bytes(64), run_id=RUN_ID, verify=lambda *_: True)


def test_deep_nesting_is_an_encoding_error() -> None:
    with pytest.raises(BadRecord):
        open_record(b"\x91" * 1900 + bytes(64), run_id=RUN_ID, verify=lambda *_: True)


def test_size_is_enforced_before_publishing() -> None:
    fits = MAX_RECORD_BYTES - len(sign_record(KEYS[0], "commit", RUN_ID, 1, {"b": bytes(1000)}).pack()) + 1000
    assert len(sign_record(KEYS[0], "commit", RUN_ID, 1, {"b": bytes(fits)}).pack()) == MAX_RECORD_BYTES
    with pytest.raises(BadRecord, match="over 2048"):
        sign_record(KEYS[0], "commit", RUN_ID, 1, {"b": bytes(fits + 1)})
    for body in ({"x": object()}, {"x": 2**70}, {1: 2}):
        with pytest.raises(BadRecord):
            sign_record(KEYS[0], "commit", RUN_ID, 1, body)  # type: ignore[arg-type]


def test_keys_and_subkeys() -> None:
    part = sign_record(KEYS[0], "part", RUN_ID, 3, {}, "12")
    assert dht_subkey(part.hotkey, part.subkey) == f"{KEYS[0].ss58}:12"
    assert dht_subkey(KEYS[0].ss58, "") == KEYS[0].ss58
    assert len({record_key(r, k, n) for r in (RUN_ID, OTHER_RUN) for k in ("part", "peer") for n in (1, 11)}) == 8


def test_a_lease_is_signed_with_its_record() -> None:
    record = sign_record(KEYS[0], "commit", RUN_ID, 7, BODY)
    value = seal(KEYS[0], record, 1000.5)
    assert unseal(value) == (record.pack(), 1000.5)
    assert lease_signed(value, KEYS[0].ss58, verify)
    assert not lease_signed(value, KEYS[1].ss58, verify)
    longer = value[:-72] + seal(KEYS[0], record, 2000.5)[-72:-64] + value[-64:]
    assert unseal(longer)[1] == 2000.5
    assert not lease_signed(longer, KEYS[0].ss58, verify)
    other = seal(KEYS[0], sign_record(KEYS[0], "commit", RUN_ID, 8, BODY), 1000.5)
    assert not lease_signed(other[:-72] + value[-72:], KEYS[0].ss58, verify)


@pytest.mark.parametrize(
    "value", [b"", bytes(72), bytes(3000), bytes(100) + bytes.fromhex("7ff0000000000000") + bytes(64)]
)
def test_leases_of_strangers(value: bytes) -> None:
    with pytest.raises(BadRecord):
        unseal(value)
    assert math.isfinite(unseal(bytes(200))[1])

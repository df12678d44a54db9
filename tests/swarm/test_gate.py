from __future__ import annotations

import pytest
from hivemind.dht.crypto import DHTRecord
from hivemind.dht.routing import DHTID
from hivemind.dht.storage import DictionaryDHTValue
from hivemind.utils import MSGPackSerializer

from subnet.chain.keys import Hotkey, verify
from subnet.swarm.gate import CLOCK_SKEW_S, UNREGISTERED, RecordGate
from subnet.swarm.identity import sign_binding
from subnet.swarm.peers import peer_body
from subnet.swarm.records import MAX_LEASE_S, BadRecord, Record, dht_subkey, record_key, seal, sign_record

from .conftest import HOTKEYS, KEYS, OTHER_RUN, RUN_ID, STRANGER
from .test_identity import PEER

NOW = 1_000_000.0


def stored(author: Hotkey, record: Record, expires: float, **changes: object) -> DHTRecord:
    """What the DHT sees of a record."""
    fields = {
        "key": DHTID.generate(source=record_key(record.run_id, record.kind, record.round)).to_bytes(),
        "subkey": MSGPackSerializer.dumps(dht_subkey(record.hotkey, record.subkey)),
        "value": MSGPackSerializer.dumps(seal(author, record, expires)),
        "expiration_time": expires,
    }
    return DHTRecord(**{**fields, **changes})  # type: ignore[arg-type]


def commit(key: Hotkey = KEYS[0], round_: int = 5, run_id: bytes = RUN_ID) -> Record:
    return sign_record(key, "commit", run_id, round_, {"root": bytes(32)})


@pytest.fixture
def gate() -> RecordGate:
    gate = RecordGate(RUN_ID, verify, now=lambda: NOW)
    gate.registered = HOTKEYS
    gate.rounds = range(3, 8)
    return gate


def test_a_good_record_is_kept(gate: RecordGate) -> None:
    assert gate.validate(stored(KEYS[0], commit(), NOW + 60))
    assert gate.validate(stored(KEYS[1], commit(KEYS[1], 3), NOW + MAX_LEASE_S))
    peer = sign_record(KEYS[0], "peer", RUN_ID, 0, peer_body(sign_binding(KEYS[0], PEER, RUN_ID, 1), []))
    assert gate.validate(stored(KEYS[0], peer, NOW + 60))
    assert not gate.rejected


def cases() -> dict[str, tuple[DHTRecord, str, str]]:
    me, other = KEYS[0].ss58, KEYS[1].ss58
    forged = stored(KEYS[0], commit(), NOW + 60)
    return {
        "unregistered": (stored(STRANGER, commit(STRANGER), NOW + 60), UNREGISTERED, "hotkey not registered"),
        "another run": (stored(KEYS[0], commit(run_id=OTHER_RUN), NOW + 60), me, "another run"),
        "stale": (stored(KEYS[0], commit(round_=2), NOW + 60), me, "round out of date"),
        "future": (stored(KEYS[0], commit(round_=8), NOW + 60), me, "round out of date"),
        "overwrites another's": (
            stored(KEYS[1], commit(KEYS[1]), NOW + 60, subkey=MSGPackSerializer.dumps(me)),
            me,
            "stored under another's key",
        ),
        "another key": (
            stored(KEYS[0], commit(), NOW + 60, key=DHTID.generate(source="x").to_bytes()),
            me,
            "stored under another's key",
        ),
        "kept for years": (stored(KEYS[0], commit(), NOW + MAX_LEASE_S + CLOCK_SKEW_S + 1), me, "expiry"),
        "run out": (stored(KEYS[0], commit(), NOW), me, "expiry"),
        "replayed with a later expiry": (
            stored(KEYS[0], commit(), NOW + 60, expiration_time=NOW + 500),
            me,
            "expiry is not the leased one",
        ),
        "lease by somebody else": (stored(KEYS[1], commit(KEYS[0]), NOW + 60), me, "lease signature"),
        "not a dictionary entry": (
            stored(KEYS[0], commit(), NOW + 60, subkey=MSGPackSerializer.dumps(None)),
            UNREGISTERED,
            "encoding",
        ),
        "large": (
            stored(KEYS[0], commit(), NOW + 60, value=MSGPackSerializer.dumps(bytes(12_000))),
            UNREGISTERED,
            "size",
        ),
        "not bytes": (
            stored(KEYS[0], commit(), NOW + 60, value=MSGPackSerializer.dumps("x")),
            UNREGISTERED,
            "encoding",
        ),
        "nonsense": (stored(KEYS[0], commit(), NOW + 60, value=b"\xc1"), UNREGISTERED, "encoding"),
        "mangled": (
            stored(KEYS[0], commit(), NOW + 60, value=forged.value[:-200] + b"\0" + forged.value[-199:]),
            me,
            "fields",
        ),
        "binding of another hotkey": (
            stored(
                KEYS[0],
                sign_record(KEYS[0], "peer", RUN_ID, 0, peer_body(sign_binding(KEYS[1], PEER, RUN_ID, 1), [])),
                NOW + 60,
            ),
            me,
            "peer binding of another hotkey",
        ),
        "peer address": (
            stored(
                KEYS[1],
                sign_record(
                    KEYS[1],
                    "peer",
                    RUN_ID,
                    0,
                    {"binding": sign_binding(KEYS[1], PEER, RUN_ID, 1).pack(), "maddrs": [b"\x04junk"]},
                ),
                NOW + 60,
            ),
            other,
            "peer addresses",
        ),
        "many peer records": (
            stored(
                KEYS[1],
                sign_record(KEYS[1], "peer", RUN_ID, 4, peer_body(sign_binding(KEYS[1], PEER, RUN_ID, 1), [])),
                NOW + 60,
            ),
            other,
            "round out of date",
        ),
    }


@pytest.mark.parametrize("name", cases())
def test_a_bad_record_is_refused_and_counted(gate: RecordGate, name: str) -> None:
    record, sender, reason = cases()[name]
    assert not gate.validate(record)
    assert gate.drain_rejected() == {(sender, reason): 1}
    assert not gate.rejected


def test_one_hotkey_cannot_fill_a_round_with_parts(gate: RecordGate) -> None:
    def parts(round_: int) -> list[bool]:
        records = [sign_record(KEYS[0], "part", RUN_ID, round_, {}, str(i)) for i in range(6)]
        return [gate.validate(stored(KEYS[0], record, NOW + 60)) for record in records]

    assert parts(5) == [True] * 4 + [False] * 2
    assert parts(6) == [True] * 4 + [False] * 2
    assert gate.validate(stored(KEYS[1], sign_record(KEYS[1], "part", RUN_ID, 5, {}, "7"), NOW + 60))
    assert gate.drain_rejected() == {(KEYS[0].ss58, "too many records in one round"): 4}


def test_a_forged_signature_is_refused(gate: RecordGate) -> None:
    good = commit()
    forged = Record(good.kind, good.run_id, good.round, good.hotkey, {"root": b"\1" * 32}, good.signature)
    assert not gate.validate(stored(KEYS[0], forged, NOW + 60))
    assert gate.drain_rejected() == {(KEYS[0].ss58, "signature"): 1}


def test_signatures_are_verified_once(gate: RecordGate) -> None:
    calls = []
    gate.verify = lambda *args: calls.append(args) is None and verify(*args)
    record = stored(KEYS[0], commit(), NOW + 60)
    assert gate.validate(record)
    first = len(calls)
    assert gate.validate(record)
    assert first == len(calls) == 2
    gate.registered = frozenset()
    assert not gate.validate(record)


def test_one_bad_entry_does_not_hide_the_others(gate: RecordGate) -> None:
    dictionary = DictionaryDHTValue()
    entries = [stored(key, commit(key), NOW + 60) for key in (*KEYS[:3], STRANGER)]
    with dictionary.freeze():
        for entry in entries:
            dictionary.store(MSGPackSerializer.loads(entry.subkey), entry.value, entry.expiration_time)
        dictionary.store("nobody", b"", NOW + 60)
    dictionary.frozen = True  # the test's clock is not this machine's
    assert gate.keep_valid(entries[0].key, dictionary)
    assert {subkey for subkey, _ in dictionary.items()} == {key.ss58 for key in KEYS[:3]}


def test_admit_says_until_when(gate: RecordGate) -> None:
    value = seal(KEYS[0], commit(), NOW + 61.5)
    assert gate.admit(value) == (commit_of(value), NOW + 61.5)
    gate.now = lambda: NOW + 62
    with pytest.raises(BadRecord, match="expiry"):
        gate.admit(value)


def commit_of(value: bytes) -> Record:
    from subnet.swarm.records import open_record, unseal

    return open_record(unseal(value)[0], run_id=RUN_ID, verify=verify)

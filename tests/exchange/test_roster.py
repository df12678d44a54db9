import dataclasses

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subnet.chain.keys import hotkey_from_uri, verify
from subnet.config import load_run
from subnet.exchange.commitment import Commitment
from subnet.exchange.roster import (
    Member,
    averaging_order,
    leader_order,
    max_roster_bytes,
    open_roster,
    pack_roster,
)
from subnet.swarm.records import BadRecord, sign_record

RUN = load_run("demo")
RUN_ID, BEACON, STATE = b"r" * 32, b"beacon" * 5, b"s" * 32
SIGNERS = [hotkey_from_uri(f"//Peer{i}") for i in range(5)]
HOTKEYS = [s.ss58 for s in SIGNERS]
MEMBERS = {h: Member(h, 0.0, False) for h in HOTKEYS}


def commit(signer, round_index=3, state=STATE, run_id=RUN_ID):
    body = Commitment(signer.ss58, signer.ss58.encode()[:32], 1.0, 100, 1, state).body()
    return sign_record(signer, "commit", run_id, round_index, body).pack()


def by_draw(signers=SIGNERS):
    records = {s.ss58: commit(s) for s in signers}
    order, averaged, _ = averaging_order(BEACON, list(records), MEMBERS, RUN.rounds)
    return [records[h] for h in order], averaged


def opened(blob, members=MEMBERS, run=RUN):
    return open_roster(
        blob, round_index=3, leader=HOTKEYS[0], run=run, run_id=RUN_ID, beacon=BEACON, members=members, verify=verify
    )


def test_a_good_roster_opens_in_the_beacons_order():
    records, averaged = by_draw()
    roster = opened(pack_roster(STATE, averaged, records))
    assert averaged == 5
    assert sorted(c.hotkey for c in roster.commitments) == sorted(HOTKEYS)
    assert roster.mean == roster.commitments


def test_every_rule_is_enforced():
    records, averaged = by_draw()
    wrong = {
        "order": pack_roster(STATE, averaged, records[::-1]),
        "rule": pack_roster(STATE, averaged - 1, records),
        "twice": pack_roster(STATE, averaged, [records[0], *records[:-1]]),
        "another state": pack_roster(b"x" * 32, averaged, records),
        "short state": pack_roster(b"x", averaged, records),
        "another round": pack_roster(STATE, 1, [commit(SIGNERS[0], round_index=4)]),
        "another run": pack_roster(STATE, 1, [commit(SIGNERS[0], run_id=b"q" * 32)]),
        "forged": pack_roster(STATE, 1, [records[0][:-1] + bytes([records[0][-1] ^ 1])]),
        "not bytes": msgpack.packb({"state": STATE, "averaged": 1, "commits": [1]}),
        "fields": msgpack.packb({"state": STATE}),
        "no map": msgpack.packb(3),
        "nobody": pack_roster(STATE, 0, []),
        "too large": b"\x00" * (max_roster_bytes(RUN.rounds) + 1),
    }
    for name, blob in wrong.items():
        with pytest.raises(BadRecord):
            opened(blob)
            pytest.fail(name)


def test_an_unregistered_hotkey_is_refused():
    records, averaged = by_draw()
    with pytest.raises(BadRecord):
        opened(pack_roster(STATE, averaged, records), members={h: m for h, m in MEMBERS.items() if h != HOTKEYS[2]})


@given(st.binary(max_size=300))
def test_junk_is_refused_and_nothing_else_happens(blob):
    with pytest.raises(BadRecord):
        opened(blob)


def test_once_enough_earn_only_earners_and_a_few_newcomers_are_averaged():
    rounds = dataclasses.replace(RUN.rounds, min_incentive_earners=2, newcomers=1)
    few = MEMBERS | {HOTKEYS[0]: Member(HOTKEYS[0], 0.5, False)}
    assert averaging_order(BEACON, HOTKEYS, few, rounds)[1] == 5
    earners = few | {HOTKEYS[1]: Member(HOTKEYS[1], 0.5, False)}
    order, averaged, earning = averaging_order(BEACON, HOTKEYS, earners, rounds)
    assert averaged == 3 and earning == 2
    assert set(order[:2]) == set(HOTKEYS[:2])
    assert sorted(order) == sorted(HOTKEYS)


def test_newcomers_are_averaged_and_reduce_nothing_once_enough_earn():
    rounds = dataclasses.replace(RUN.rounds, min_incentive_earners=2, newcomers=1)
    earners = MEMBERS | {h: Member(h, 0.5, False) for h in HOTKEYS[:2]}
    records = {s.ss58: commit(s) for s in SIGNERS}
    order, averaged, _ = averaging_order(BEACON, HOTKEYS, earners, rounds)
    blob = pack_roster(STATE, averaged, [records[h] for h in order])
    roster = opened(blob, earners, dataclasses.replace(RUN, rounds=rounds))
    assert len(roster.mean) == 3 and {c.hotkey for c in roster.reducing} == set(HOTKEYS[:2])
    everybody = opened(pack_roster(STATE, 5, by_draw()[0]))
    assert everybody.reducing == everybody.mean


def test_validators_with_a_permit_lead_first_and_the_beacon_moves_the_order():
    members = [Member(h, 0.0, h == HOTKEYS[3]) for h in HOTKEYS]
    orders = {tuple(leader_order(bytes([i]) * 32, members)) for i in range(16)}
    assert all(order[0] == HOTKEYS[3] for order in orders)
    assert len(orders) > 4

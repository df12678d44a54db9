from __future__ import annotations

from collections.abc import Sequence

import pytest

from subnet.chain.keys import Hotkey, verify
from subnet.swarm import multiaddr
from subnet.swarm.identity import ChainCommitment, sign_binding
from subnet.swarm.peers import MAX_ADDRESSES, PeerBook, open_peer, peer_body
from subnet.swarm.records import BadRecord, Record, sign_record

from .conftest import KEYS, OTHER_RUN, RUN_ID, Row
from .test_identity import PEER

PUBLIC, PRIVATE, LOOPBACK = (multiaddr.to_bytes(f"/ip4/{ip}/tcp/4001") for ip in ("8.8.8.8", "10.0.0.7", "127.0.0.1"))


def said(key: Hotkey, maddrs: Sequence[str] = ("/ip4/8.8.8.8/tcp/4001",)) -> Record:
    return sign_record(key, "peer", RUN_ID, 0, peer_body(sign_binding(key, PEER, RUN_ID, 1), maddrs))


@pytest.fixture
def book() -> PeerBook:
    return PeerBook(RUN_ID, verify, KEYS[0].ss58)


def test_peers_come_from_their_records(book: PeerBook) -> None:
    book.learn([(said(KEYS[0]), 50.0), (said(KEYS[1]), 50.0), (said(KEYS[2], []), 60.0)])
    assert set(book.live) == {KEYS[1].ss58, KEYS[2].ss58}
    assert book.live[KEYS[1].ss58].maddrs == (PUBLIC,)
    book.learn([(said(KEYS[2]), 70.0)])
    assert set(book.reachable()) == {KEYS[2].ss58}


def test_addresses_nearer_than_our_own_are_not_dialled(book: PeerBook) -> None:
    texts = [multiaddr.to_text(m) for m in (PUBLIC, PRIVATE, LOOPBACK)]
    record = said(KEYS[1], texts)
    book.learn([(record, 50.0)])
    assert book.live[KEYS[1].ss58].maddrs == (PUBLIC,)
    local = PeerBook(RUN_ID, verify, KEYS[0].ss58, reach=frozenset({"loopback", "private"}))
    local.learn([(record, 50.0)])
    assert local.live[KEYS[1].ss58].maddrs == (PUBLIC, PRIVATE, LOOPBACK)


def test_a_peer_that_was_not_reached_counts_again_when_it_speaks(book: PeerBook) -> None:
    record, hotkey = said(KEYS[1]), KEYS[1].ss58
    book.learn([(record, 50.0)])
    book.mark_down(hotkey)
    book.mark_down("nobody")
    book.learn([(record, 50.0)])
    assert hotkey not in book.reachable()
    assert book.find(hotkey) is not None
    book.mark_up(hotkey)
    assert hotkey in book.reachable()
    book.mark_down(hotkey)
    book.learn([(record, 70.0)])
    assert hotkey in book.reachable()


def test_a_broken_connection_is_a_sign_of_death(book: PeerBook) -> None:
    hotkey = KEYS[1].ss58
    book.learn([(said(KEYS[1]), 50.0)])
    book.note_connections(frozenset())
    assert hotkey in book.reachable()  # never connected to: nothing can be said of it
    book.note_connections(frozenset({PEER}))
    assert hotkey in book.reachable()
    book.note_connections(frozenset())
    assert hotkey not in book.reachable()
    book.note_connections(frozenset({PEER}))
    assert hotkey in book.reachable()


def test_the_chain_is_asked_when_a_peer_is_silent(book: PeerBook) -> None:
    mine = ChainCommitment.of(1, PEER, ["/ip4/8.8.8.8/tcp/4001", "/ip4/10.0.0.7/tcp/4001"], RUN_ID).pack()
    theirs = ChainCommitment.of(1, PEER, ["/ip4/8.8.8.8/tcp/4001"], OTHER_RUN).pack()
    book.learn_chain(
        [Row(KEYS[0].ss58, mine), Row(KEYS[1].ss58, mine), Row(KEYS[2].ss58, theirs), Row(KEYS[3].ss58, b"x"), Row("y")]
    )
    assert set(book.on_chain) == {KEYS[1].ss58}
    assert [peer.hotkey for peer in book.other_runs] == [KEYS[2].ss58]
    known = book.find(KEYS[1].ss58)
    assert known is not None
    assert (known.peer_id, known.maddrs) == (PEER, (PUBLIC,))
    assert book.find(KEYS[2].ss58) is None
    assert not book.reachable()


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({}, "peer fields"),
        ({"binding": b"", "maddrs": [], "more": 1}, "peer fields"),
        ({"binding": "x", "maddrs": []}, "peer fields"),
        ({"binding": b"", "maddrs": []}, "peer binding size"),
        ({"binding": sign_binding(KEYS[1], PEER, RUN_ID, 1).pack(), "maddrs": [PUBLIC] * 9}, "peer addresses"),
        (
            {"binding": sign_binding(KEYS[1], PEER, RUN_ID, 1).pack(), "maddrs": ["/ip4/1.1.1.1/tcp/1"]},
            "peer addresses",
        ),
        ({"binding": sign_binding(KEYS[1], PEER, RUN_ID, 1).pack(), "maddrs": [b"\x04"]}, "peer addresses"),
        (
            {
                "binding": sign_binding(KEYS[1], PEER, RUN_ID, 1).pack(),
                "maddrs": [multiaddr.to_bytes(f"/ip4/1.1.1.1/tcp/1/p2p/{PEER}")],
            },
            "peer addresses",
        ),
        ({"binding": sign_binding(KEYS[2], PEER, RUN_ID, 1).pack(), "maddrs": []}, "peer binding of another hotkey"),
    ],
)
def test_bad_bodies(book: PeerBook, body: dict, reason: str) -> None:
    record = sign_record(KEYS[1], "peer", RUN_ID, 0, body)
    with pytest.raises(BadRecord, match=f"^{reason}$"):
        open_peer(record, run_id=RUN_ID, verify=verify)
    book.learn([(record, 50.0)])
    assert not book.live


def test_what_is_said_fits_a_record() -> None:
    longest = [f"/dns4/{'a' * 50}.{'b' * 40}.example/tcp/{i}/p2p/{PEER}" for i in range(1, 20)]
    record = said(KEYS[1], longest)
    assert len(record.body["maddrs"]) == MAX_ADDRESSES
    assert len(open_peer(record, run_id=RUN_ID, verify=verify)[1]) == MAX_ADDRESSES

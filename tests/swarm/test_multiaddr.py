import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subnet.swarm import multiaddr

PEER = "12D3KooWKcfTmGBqiH125fFP9JyJ8zkU1oGuQ4h2KCE47o8QAJHR"

ports = st.integers(0, 65535)
hosts = st.one_of(
    st.ip_addresses(v=4).map(lambda a: f"/ip4/{a}"),
    st.ip_addresses(v=6).map(lambda a: f"/ip6/{a}"),
    st.from_regex(r"[a-z0-9]{1,10}(-[a-z0-9]{1,8})?(\.[a-z]{2,8}){1,3}", fullmatch=True).map(lambda h: f"/dns4/{h}"),
)
transports = st.one_of(ports.map(lambda p: f"/tcp/{p}"), ports.map(lambda p: f"/udp/{p}/quic-v1"))
tails = st.sampled_from(["", f"/p2p/{PEER}", f"/p2p/{PEER}/p2p-circuit", f"/p2p/{PEER}/p2p-circuit/p2p/{PEER}"])
addresses = st.tuples(hosts, transports, tails).map("".join)


def test_the_bytes_are_libp2ps() -> None:
    assert multiaddr.to_bytes("/ip4/127.0.0.1/tcp/35487").hex() == "047f000001068a9f"
    assert multiaddr.to_bytes("/ip6/::1/udp/4001/quic-v1").hex() == "29" + "00" * 15 + "01" + "91020fa1" + "cd03"
    assert multiaddr.to_bytes(f"/dns4/a.example/tcp/1/p2p/{PEER}").hex() == (
        "36" + "09" + b"a.example".hex() + "060001" + "a503" + "26" + "002408011220"
        "9195740c12c55323e2f14363dc5592d2f6320b9bc95693b3aedb6f291369d1d4"
    )  # fmt: skip


@given(addresses)
@settings(max_examples=60, deadline=None)
def test_text_and_bytes_are_inverse(text: str) -> None:
    data = multiaddr.to_bytes(text)
    assert len(data) <= multiaddr.MAX_BYTES
    assert multiaddr.to_text(data) == text
    plain, peer = multiaddr.without_peer(data)
    assert (peer is not None) == text.endswith(PEER)
    assert multiaddr.reach(plain) == multiaddr.reach(data)


@given(st.one_of(st.binary(max_size=64), addresses.map(multiaddr.to_bytes)), st.data())
@settings(max_examples=150, deadline=None)
def test_bytes_of_strangers_are_canonical_or_refused(data: bytes, draw: st.DataObject) -> None:
    if data:
        at = draw.draw(st.integers(0, len(data) - 1))
        data = data[:at] + draw.draw(st.binary(max_size=2)) + data[at + draw.draw(st.integers(0, 2)) :]
    try:
        text = multiaddr.to_text(data)
    except ValueError:
        return
    assert multiaddr.to_bytes(text) == data


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/",
        "127.0.0.1:4001",
        "/ip4/127.0.0.1",
        "/ip4/127.0.0.1/tcp/65536",
        "/ip4/127.0.0.1/tcp/-1",
        "/ip4/127.0.0.1/tcp/٣",
        "/ip4/127.0.0/tcp/1",
        "/ip6/fe80::1%eth0/tcp/1",
        "/tcp/1/ip4/127.0.0.1",
        "/ip4/127.0.0.1/udp/1",
        "/ip4/127.0.0.1/tcp/1/ws",
        "/ip4/127.0.0.1/tcp/1/p2p/QmNotAPeer",
        "/ip4/127.0.0.1/tcp/1/p2p",
        "/dns4/-bad-/tcp/1",
        "/dns4/" + "a." * 60 + "example/tcp/1",
        "/ip4/127.0.0.1/tcp/1" + "/p2p-circuit" * 100,
    ],
)
def test_what_cannot_be_dialled_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        multiaddr.to_bytes(text)


def test_reach() -> None:
    reach = {
        "/ip4/127.0.0.1/tcp/1": "loopback",
        "/ip6/::1/tcp/1": "loopback",
        "/ip4/0.0.0.0/tcp/1": "loopback",
        "/ip4/10.1.2.3/tcp/1": "private",
        "/ip4/192.168.0.1/tcp/1": "private",
        "/ip6/fe80::1/tcp/1": "private",
        "/ip4/8.8.8.8/tcp/1": "public",
        "/dns4/peer.example/tcp/1": "public",
    }
    assert {text: multiaddr.reach(multiaddr.to_bytes(text)) for text in reach} == reach

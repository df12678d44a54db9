import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subnet.chain.keys import verify
from subnet.errors import UserError
from subnet.swarm.identity import (
    MAX_COMMITMENT_BYTES,
    BadBinding,
    ChainCommitment,
    load_identity,
    open_binding,
    peer_id_bytes,
    peer_id_of,
    sign_binding,
)

from .conftest import KEYS, OTHER_RUN, RUN_ID

PUBLIC = bytes.fromhex("9195740c12c55323e2f14363dc5592d2f6320b9bc95693b3aedb6f291369d1d4")
PEER = "12D3KooWKcfTmGBqiH125fFP9JyJ8zkU1oGuQ4h2KCE47o8QAJHR"


def test_peer_ids_are_libp2ps() -> None:
    assert peer_id_of(PUBLIC) == PEER
    assert peer_id_bytes(PEER)[6:] == PUBLIC
    for bad in ("", "12D3", PEER[:-1], "Qm" * 23, "0OIl"):
        with pytest.raises(ValueError):
            peer_id_bytes(bad)


def test_the_key_is_made_once_and_is_private(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "identity.key"
    with ThreadPoolExecutor(8) as pool:
        ids = set(pool.map(lambda _: load_identity(path), range(16)))
    assert ids == {load_identity(path)}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [p.name for p in path.parent.iterdir()] == ["identity.key"]


@pytest.mark.parametrize("content", [b"", b"garbage", b"\x08\x01\x12\x40" + bytes(64), b"\x08\x00\x12\x40" + bytes(64)])
def test_a_broken_key_file_is_the_users_to_remove(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "identity.key"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"identity\.key is not a libp2p ed25519 key; remove"):
        load_identity(path)
    assert path.read_bytes() == content


def test_a_home_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot keep the libp2p key"):
        load_identity(tmp_path / "file" / "identity.key")


def test_binding() -> None:
    data = sign_binding(KEYS[0], PEER, RUN_ID, 1234).pack()
    binding = open_binding(data, run_id=RUN_ID, verify=verify)
    assert (binding.hotkey, binding.peer_id, binding.issued_block) == (KEYS[0].ss58, PEER, 1234)
    assert binding.pack() == data
    with pytest.raises(BadBinding, match="another run"):
        open_binding(data, run_id=OTHER_RUN, verify=verify)
    for at in range(len(data)):
        with pytest.raises(BadBinding):
            open_binding(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], run_id=RUN_ID, verify=verify)


def test_a_binding_in_another_encoding_is_refused() -> None:
    data = sign_binding(KEYS[0], PEER, RUN_ID, 5).pack()
    at = len(data) - 65
    assert data[at] == 5
    longer = data[:at] + b"\xcc\x05" + data[at + 1 :]  # the same number in two bytes
    with pytest.raises(BadBinding, match="encoding"):
        open_binding(longer, run_id=RUN_ID, verify=lambda *_: True)


@given(st.binary(max_size=300))
@settings(max_examples=150, deadline=None)
def test_bindings_of_strangers(data: bytes) -> None:
    with pytest.raises(BadBinding):
        open_binding(data, run_id=RUN_ID, verify=verify)


addresses = st.tuples(st.ip_addresses(), st.integers(1, 65535)).map(lambda a: f"/ip{a[0].version}/{a[0]}/tcp/{a[1]}")


@given(st.integers(1, 255), st.binary(min_size=32, max_size=32), st.lists(addresses, max_size=12))
@settings(max_examples=60, deadline=None)
def test_chain_commitment(protocol: int, key: bytes, maddrs: list[str]) -> None:
    peer = peer_id_of(key)
    commitment = ChainCommitment.of(protocol, peer, [m + f"/p2p/{peer}" for m in maddrs], RUN_ID)
    data = commitment.pack()
    assert len(data) <= MAX_COMMITMENT_BYTES
    assert ChainCommitment.unpack(data) == commitment
    assert list(commitment.maddrs) == [m for m in dict.fromkeys(maddrs) if m in commitment.maddrs]
    if len(maddrs) <= 3:
        assert set(commitment.maddrs) == set(maddrs)


def test_the_commitment_is_these_bytes() -> None:
    data = ChainCommitment.of(1, PEER, ["/ip4/8.8.8.8/tcp/4001"], RUN_ID).pack()
    assert data.hex() == b"sn38".hex() + "01" + RUN_ID[:8].hex() + PUBLIC.hex() + "08" + "0408080808" + "060fa1"


@given(st.one_of(st.binary(max_size=140), st.binary(max_size=140).map(lambda b: b"sn38\x01" + bytes(40) + b)))
@settings(max_examples=150, deadline=None)
def test_commitments_of_strangers_are_canonical_or_refused(data: bytes) -> None:
    try:
        commitment = ChainCommitment.unpack(data)
    except ValueError:
        return
    assert commitment.pack() == data


def test_a_commitment_that_does_not_fit_is_refused() -> None:
    many = tuple(f"/ip4/1.2.3.{i}/tcp/1" for i in range(20))
    with pytest.raises(ValueError, match="does not fit"):
        ChainCommitment(1, PEER, many, RUN_ID[:8]).pack()
    with pytest.raises(ValueError):
        ChainCommitment(0, PEER, (), RUN_ID[:8]).pack()

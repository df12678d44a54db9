"""Roots against RFC 9162's recursive definition, range proofs that only the truth passes."""

import random
from hashlib import blake2b

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subnet.diloco.merkle import Tree, hash_leaves, leaf_hash, owned, range_proof, root, verify_range

# n -> root over the leaves b"", b"\0", b"\0\1", ...
GOLDEN = {
    1: "913d44cf048ca71fc63ab8cc3ebcc322403f1e21f7f406c74ce74294da59bcde",
    2: "a60da80db45fd7cba52c4593a8d9603e03debda997b0dcf081627018ae0f4419",
    3: "61abac5d5686a44ad346835c4a8bced1d09a9469e16b91aebb6ba8b64ce3552b",
    7: "e3e18ab0d7dae8e9e9ebe9a1d18e0fa367b2c5c12cc082cfc7974e0169dc5983",
    300: "e12df10789e8a8ddf04f08e1fa166dc8629fef942b2b9101e7ab1d044cf264dd",
}


def leaves_of(n: int) -> list[bytes]:
    return [bytes(j % 256 for j in range(i)) for i in range(n)]


def hashes_of(n: int) -> list[bytes]:
    return [leaf_hash(leaf) for leaf in leaves_of(n)]


def top(hashes: list[bytes]) -> bytes:
    """RFC 9162, 2.1.1: split at the largest power of two below n."""
    if len(hashes) == 1:
        return hashes[0]
    k = 1 << ((len(hashes) - 1).bit_length() - 1)
    return blake2b(b"sn38/node/1\0" + top(hashes[:k]) + top(hashes[k:]), digest_size=32).digest()


@pytest.mark.parametrize("n", GOLDEN)
def test_golden_roots(n: int) -> None:
    assert root(hashes_of(n)).hex() == GOLDEN[n]


@pytest.mark.parametrize("n", [*range(1, 40), 255, 256, 257, 400])
def test_root_is_the_recursive_definition(n: int) -> None:
    bound = blake2b(b"sn38/root/1\0" + n.to_bytes(8, "little") + top(hashes_of(n)), digest_size=32).digest()
    assert root(hashes_of(n)) == bound


@pytest.mark.parametrize("n", range(1, 18))
def test_every_range_of_small_trees(n: int) -> None:
    hashes = hashes_of(n)
    tree = Tree(hashes)
    for start in range(n):
        for stop in range(start + 1, n + 1):
            proof = tree.range_proof(start, stop)
            assert len(proof) <= 2 * n.bit_length()
            assert verify_range(tree.root, n, start, hashes[start:stop], proof)


@st.composite
def ranges(draw: st.DrawFn) -> tuple[int, int, int]:
    n = draw(st.integers(1, 700))
    start = draw(st.integers(0, n - 1))
    return n, start, draw(st.integers(start + 1, min(n, start + 40)))


@settings(max_examples=150, deadline=None)
@given(ranges(), st.integers(0, 2**32))
def test_tampering_is_seen(where: tuple[int, int, int], seed: int) -> None:
    n, start, stop = where
    hashes, rng = hashes_of(n), random.Random(seed)
    good, proof, truth = hashes[start:stop], range_proof(hashes, start, stop), root(hashes)
    assert verify_range(truth, n, start, good, proof)

    def flipped(items: list[bytes]) -> list[bytes]:
        index, bit = rng.randrange(len(items)), rng.randrange(256)
        changed = (int.from_bytes(items[index], "big") ^ (1 << bit)).to_bytes(32, "big")
        return [*items[:index], changed, *items[index + 1 :]]

    assert not verify_range(truth, n, start, flipped(good), proof)
    assert not verify_range(flipped([truth])[0], n, start, good, proof)
    assert not verify_range(truth, n + 1, start, good, proof)
    assert not verify_range(truth, n - 1, start, good, proof)
    assert not verify_range(truth, n, start + 1, good, proof)
    assert not verify_range(truth, n, start - 1, good, proof)
    assert not verify_range(truth, n, start, good[:-1], proof)
    assert not verify_range(truth, n, start, [*good, good[-1]], proof)
    assert not verify_range(truth, n, start, good, [*proof, rng.randbytes(32)])
    assert not verify_range(truth, n, start, good, [h[:31] for h in proof] or [b"short"])
    if proof:
        assert not verify_range(truth, n, start, good, flipped(proof))
        assert not verify_range(truth, n, start, good, proof[:-1])
        assert not verify_range(truth, n, start, good, proof[1:])
    if len(good) > 1:
        assert not verify_range(truth, n, start, [good[1], good[0], *good[2:]], proof)


@settings(max_examples=80, deadline=None)
@given(
    st.binary(min_size=0, max_size=40),
    st.integers(-3, 2**70),
    st.integers(-3, 2**70),
    st.lists(st.binary(max_size=33) | st.just(bytes(32)), max_size=4),
    st.lists(st.binary(max_size=33) | st.just(bytes(32)), max_size=70),
)
def test_junk_is_refused_and_never_raises(r: bytes, n: int, start: int, hashes: list, proof: list) -> None:
    assert verify_range(r, n, start, hashes, proof) is False


def test_domains_are_separate() -> None:
    a, b, c, d = hashes_of(4)
    inner = [blake2b(b"sn38/node/1\0" + x + y, digest_size=32).digest() for x, y in ((a, b), (c, d))]
    assert root(inner) != root([a, b, c, d])  # same top node, other leaf count
    assert leaf_hash(a + b) not in inner
    assert leaf_hash(b"") != blake2b(b"", digest_size=32).digest()


def test_hash_leaves_on_many_cores_is_leaf_hash() -> None:
    leaves = [random.Random(i).randbytes(5000) for i in range(333)]
    assert hash_leaves([memoryview(leaf) for leaf in leaves]) == [leaf_hash(leaf) for leaf in leaves]
    assert hash_leaves([]) == []


@pytest.mark.parametrize(("start", "stop"), [(0, 0), (-1, 1), (2, 4), (2, 1)])
def test_no_proof_of_an_outlying_range(start: int, stop: int) -> None:
    with pytest.raises(ValueError, match="no leaves"):
        range_proof(hashes_of(3), start, stop)


@pytest.mark.parametrize("hashes", [[], [b"short"], [bytes(32), bytes(33)]])
def test_no_tree_of_bad_hashes(hashes: list[bytes]) -> None:
    with pytest.raises(ValueError, match=r"tree needs|32 bytes"):
        root(hashes)


def test_an_owned_root_proves_for_its_owner_only():
    hashes = [leaf_hash(bytes([i])) for i in range(5)]
    plain, proof = root(hashes), range_proof(hashes, 1, 3)
    mine = owned(plain, "5alice")
    assert owned(plain, "") == plain != mine != owned(plain, "5bob")
    assert verify_range(mine, 5, 1, hashes[1:3], proof, owner="5alice")
    assert not verify_range(mine, 5, 1, hashes[1:3], proof, owner="5bob")
    assert not verify_range(mine, 5, 1, hashes[1:3], proof)

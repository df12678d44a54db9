"""Snapshots: what is written is what is hashed and given."""

import pytest
import torch

from subnet.diloco.layout import Layout
from subnet.diloco.merkle import Tree, hash_leaves
from subnet.diloco.snapshot import Snapshot, hashed, leaf_bytes, num_leaves, opened

LAYOUT = Layout.of([("a", (16, 9)), ("b", (8,))], 7)
VECTORS = list(torch.randn(3, LAYOUT.numel, generator=torch.Generator().manual_seed(1)))


def test_leaves_come_from_disk_as_they_were_hashed(tmp_path):
    snapshot = Snapshot.write(tmp_path / "0.f32", LAYOUT, VECTORS)
    leaves = [snapshot.leaf(i) for i in range(num_leaves(LAYOUT))]
    assert Tree(hash_leaves(leaves)).root == snapshot.tree.root == hashed(LAYOUT, VECTORS).root
    assert list(snapshot.leaf_hashes()) == hash_leaves(leaves)
    assert [len(leaf) for leaf in leaves] == [leaf_bytes(LAYOUT, i) for i in range(len(leaves))]
    for number, vector in enumerate(VECTORS):
        first = number * LAYOUT.num_leaves
        assert torch.equal(opened(LAYOUT, leaves[first : first + LAYOUT.num_leaves], first), vector)


def test_another_number_anywhere_is_another_root():
    root = hashed(LAYOUT, VECTORS).root
    for number in range(3):
        changed = [v.clone() for v in VECTORS]
        changed[number][-1] += 1e-3
        assert hashed(LAYOUT, changed).root != root


def test_leaves_of_another_size_or_not_finite_are_refused():
    leaf = VECTORS[0][slice(*LAYOUT.leaves[0])].numpy().tobytes()
    with pytest.raises(ValueError, match="bytes"):
        opened(LAYOUT, [leaf[:-1]], 0)
    broken = VECTORS[0][slice(*LAYOUT.leaves[0])].clone()
    broken[1] = float("nan")
    with pytest.raises(ValueError, match="finite"):
        opened(LAYOUT, [broken.numpy().tobytes()], LAYOUT.num_leaves)

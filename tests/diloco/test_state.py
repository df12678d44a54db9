"""The state's digest is pinned, follows every change, and a repaired peer holds the same bits as the rest."""

from collections.abc import Callable

import pytest
import torch

from subnet.diloco.codec import CodecError
from subnet.diloco.layout import Layout
from subnet.diloco.merkle import leaf_hash, range_proof, root, verify_range
from subnet.diloco.state import OuterState, state_digest

LAYOUT = Layout.of([("w", (16, 300)), ("norm", (16,))], 512)


@pytest.fixture
def state(values: Callable[..., torch.Tensor]) -> OuterState:
    return OuterState(values(LAYOUT.numel, 0, 1.0), values(LAYOUT.numel, 1), 7, LAYOUT)


def test_golden_digest(state: OuterState) -> None:
    assert state.digest().hex() == "a4b400d607fe0086a24da0f5d90bf1a9deefdaacc434d0b109ecef719b75b75b"


def test_leaves_are_parameters_then_momentum(state: OuterState) -> None:
    whole = b"".join(state.leaf(i) for i in range(state.num_leaves))
    assert whole == state.theta.numpy().tobytes() + state.momentum.numpy().tobytes()
    assert state.num_leaves == 2 * LAYOUT.num_leaves
    assert [state.leaf_size(i) for i in range(state.num_leaves)] == [4 * (b - a) for a, b in LAYOUT.leaves] * 2
    assert list(state.leaf_hashes()) == [leaf_hash(state.leaf(i)) for i in range(state.num_leaves)]
    assert state.root() == root(state.leaf_hashes())
    assert state.digest() == state_digest(7, state.root())
    for index in (-1, state.num_leaves):
        with pytest.raises(IndexError):
            state.leaf(index)


def test_step_parameters_and_momentum_all_count(state: OuterState) -> None:
    digests = {state.digest()}
    other = state.clone()
    other.step = 8
    digests.add(other.digest())
    for tensor in (other.theta, other.momentum):
        tensor[5] += 2.0**-20
        digests.add(other.digest())
    swapped = OuterState(state.momentum, state.theta, 7, LAYOUT)
    digests.add(swapped.digest())
    assert len(digests) == 5


def test_an_equal_state_has_an_equal_digest(state: OuterState) -> None:
    twin = state.clone()
    assert twin.digest() == state.digest()
    twin.theta.zero_()
    assert twin.digest() != state.digest() and bool(state.theta.any())


def test_repair_leaf_by_leaf(state: OuterState) -> None:
    """A peer that drifted fetches only what differs, each leaf proven against the majority's root."""
    mine = state.clone()
    mine.theta[3] = 1.0  # in the second leaf: "norm" comes first, in leaves of two
    mine.momentum[-1] = 1.0
    differing = [i for i, (a, b) in enumerate(zip(mine.leaf_hashes(), state.leaf_hashes(), strict=True)) if a != b]
    assert differing == [1, state.num_leaves - 1]
    for i in differing:
        leaf, proof = state.leaf(i), range_proof(state.leaf_hashes(), i, i + 1)
        assert verify_range(state.root(), state.num_leaves, i, [leaf_hash(leaf)], proof)
        mine.set_leaf(i, leaf)
    assert mine.digest() == state.digest()


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_set_leaf_takes_only_finite_values_of_the_right_size(state: OuterState, bad: float) -> None:
    before = state.digest()
    leaf = state.leaf(2)
    for data in (leaf[:-1], leaf + b"\0", b"", leaf[:-4] + torch.tensor([bad]).numpy().tobytes()):
        with pytest.raises(CodecError):
            state.set_leaf(2, data)
    assert state.digest() == before


def test_refuses_what_is_no_state() -> None:
    good = torch.zeros(LAYOUT.numel)
    wrong = [torch.zeros(5), good.double(), torch.zeros(2 * LAYOUT.numel)[::2]]
    for tensor in wrong:
        with pytest.raises(ValueError, match="theta must be"):
            OuterState(tensor, good, 0, LAYOUT)
        with pytest.raises(ValueError, match="momentum must be"):
            OuterState(good, tensor, 0, LAYOUT)
    with pytest.raises(ValueError, match="step"):
        OuterState(good, good.clone(), -1, LAYOUT)

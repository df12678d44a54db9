"""What was applied plus what is still owed is what was computed, whatever a round loses."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from subnet.diloco.aggregate import mean_weights, reduce_part
from subnet.diloco.codec import CodecError, Int8, decode_part, encode_tree
from subnet.diloco.feedback import ErrorFeedback
from subnet.diloco.layout import Layout

LAYOUT = Layout.of([("a", (8, 30)), ("b", (16,)), ("c", (32, 5))], 25)


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(0, 2**32))
def test_nothing_is_lost(data: st.DataObject, seed: int) -> None:
    """Random parts missing, commitments dropped, rounds broken off before they were settled."""
    generator = torch.Generator().manual_seed(seed)
    codec, feedback = Int8(16), ErrorFeedback(LAYOUT.numel)
    computed = torch.zeros(LAYOUT.numel, dtype=torch.float64)
    applied = torch.zeros(LAYOUT.numel, dtype=torch.float64)
    fates = st.sampled_from(["parts", "parts", "dropped", "broken off"])
    for fate in data.draw(st.lists(fates, min_size=1, max_size=6)):
        delta = torch.randn(LAYOUT.numel, generator=generator)
        computed += delta
        x = feedback.add(delta)
        if fate == "broken off":
            continue
        leaves = encode_tree(codec, LAYOUT, x)
        sent = decode_part(codec, LAYOUT, leaves, 0, LAYOUT.num_leaves)
        carried = []
        if fate == "parts":
            parts = LAYOUT.parts(data.draw(st.integers(1, 6)))
            carried = [LAYOUT.span(*part) for part in parts if data.draw(st.booleans())]
        feedback.settle(sent, carried)
        for start, stop in carried:
            applied[start:stop] += sent[start:stop]
    assert torch.allclose(applied + feedback.residual, computed, rtol=0.0, atol=2e-5)


def test_a_reducers_output_error_comes_back_through_its_own_share() -> None:
    """Round 1: the reducer's coarse codec loses part of the mean. Round 2, sent exactly, brings it back to all."""
    generator = torch.Generator().manual_seed(1)
    n, tokens, norms = 64, [1, 2, 5], [1.0, 1.0, 1.0]
    coarse = Int8(64)
    feedbacks = [ErrorFeedback(n) for _ in tokens]
    sent = [f.add(torch.randn(n, generator=generator)).clone() for f in feedbacks]
    exact = reduce_part(sent, tokens, norms)
    published = coarse.decode(coarse.encode(exact), n)
    for feedback, x in zip(feedbacks, sent, strict=True):
        feedback.settle(x, [(0, n)])
        assert not feedback.residual.any()
    reducer, weight = feedbacks[1], mean_weights(tokens, norms)[1]
    reducer.add_range(0, n, (exact - published) / weight)
    second = reduce_part([f.add(torch.zeros(n)) for f in feedbacks], tokens, norms)
    assert not torch.allclose(published, exact, atol=1e-4)
    assert torch.allclose(published + second, exact, rtol=0.0, atol=1e-6)


def test_decay_fades_the_old_error_only() -> None:
    feedback = ErrorFeedback(4, decay=0.5)
    feedback.add(torch.full((4,), 8.0))
    assert feedback.add(torch.ones(4)).tolist() == [5.0] * 4


def test_add_range_touches_its_elements_only() -> None:
    feedback = ErrorFeedback(6)
    feedback.add_range(2, 4, torch.tensor([1.0, 2.0]))
    assert feedback.residual.tolist() == [0, 0, 1, 2, 0, 0]
    for start, stop, values in ((5, 7, torch.ones(2)), (0, 2, torch.ones(3)), (-1, 1, torch.ones(2))):
        with pytest.raises(ValueError, match="do not fit"):
            feedback.add_range(start, stop, values)
    with pytest.raises(CodecError):
        feedback.add_range(0, 1, torch.tensor([float("nan")]))
    assert feedback.residual.tolist() == [0, 0, 1, 2, 0, 0]


@pytest.mark.parametrize("carried", [[(0, 3), (2, 4)], [(-1, 2)], [(5, 7)], [(3, 2)]])
def test_bad_ranges_change_nothing(carried: list[tuple[int, int]]) -> None:
    feedback = ErrorFeedback(6)
    feedback.add(torch.ones(6))
    with pytest.raises(ValueError, match="carried"):
        feedback.settle(torch.ones(6), carried)
    assert feedback.residual.tolist() == [1.0] * 6


def test_a_bad_delta_changes_nothing() -> None:
    feedback = ErrorFeedback(3)
    feedback.load(torch.tensor([1.0, 2.0, 3.0]))
    with pytest.raises(CodecError):
        feedback.add(torch.tensor([0.0, float("inf"), 0.0]))
    for wrong in (torch.ones(4), torch.ones(3, dtype=torch.float64)):
        for method in (feedback.add, feedback.load):
            with pytest.raises(ValueError, match="expected fp32"):
                method(wrong)
        with pytest.raises(ValueError, match="expected fp32"):
            feedback.settle(wrong, [])
    assert feedback.residual.tolist() == [1.0, 2.0, 3.0]
    with pytest.raises(ValueError, match="decay"):
        ErrorFeedback(3, decay=1.5)

"""The rules: pinned bits, who has a vote, what moves the result and how far, and what zeros mean."""

import math
from collections.abc import Callable
from hashlib import blake2b

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from subnet.diloco.aggregate import CenteredClip, Mean, Rule, Trimmed, exact, norm, reduce_part

Values = Callable[..., torch.Tensor]

N = 150_001
"""More than two blocks of the distances' sum and four chunks of the sort, and no multiple of any vector width."""
TOKENS = [1000, 3000, 1, 777, 2500, 1000, 40]
NORMS = [1.0, 3.7, 0.4, 1.3, 0.9, 1.1, 1.0]
MEAN, SENDERS, TRIMMED, MEDIAN = Mean(), Mean(over="senders"), Trimmed(0.2), Trimmed(0.5)
CLIP = CenteredClip(1.0, 3)
RULES: list[Rule] = [MEAN, SENDERS, TRIMMED, MEDIAN, CLIP]
ROBUST: list[Rule] = [TRIMMED, MEDIAN, CLIP]
GOLDEN = {
    MEAN: "b2b505930dbea5a865b1eea6f1ab0f43",
    SENDERS: "ec7603cdc5dd7aaeee3a94368a60c13d",
    TRIMMED: "51e47589e0b31fd3cd8bcfe7818a407d",
    MEDIAN: "855a91e601fca779cca55953e5987c0c",
    CLIP: "1674bc44cd12590d92f2cff1b5cb814d",
}

every_rule = pytest.mark.parametrize("rule", RULES, ids=str)
every_robust_rule = pytest.mark.parametrize("rule", ROBUST, ids=str)


@pytest.fixture
def members(values: Values) -> list[torch.Tensor]:
    """Seven, with a common part, a longer one, and zeros of both signs where a sparse codec would have them."""
    common = values(N, 100)
    members = [common + values(N, seed, (1 + seed) * 2.0**-11) for seed in range(7)]
    for seed, x in enumerate(members):
        x[values(N, 200 + seed) > 2.0**-11] = -0.0 if seed % 2 else 0.0
    return members


def digest(x: torch.Tensor) -> str:
    return blake2b(x.numpy().tobytes(), digest_size=16).hexdigest()


@every_rule
def test_golden(
    rule: Rule, members: list[torch.Tensor], threads: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = [x.clone() for x in members]
    for count, chunk in ((1, exact._CHUNK), (2, 2**15), (3, 1000), (2, 10**6)):
        threads(count)
        monkeypatch.setattr(exact, "_CHUNK", chunk)
        monkeypatch.setattr(exact, "_SORT_CHUNK", chunk)
        assert digest(reduce_part(members, TOKENS, NORMS, rule)) == GOLDEN[rule]
    assert all(torch.equal(a, b) for a, b in zip(members, before, strict=True)), "a member was changed"


def test_centered_clip_in_numpy(members: list[torch.Tensor]) -> None:
    """The same operations written another way; the distances have a test of their own."""
    clips = [float(np.float32(min(1.0, 1.0 / n))) for n in NORMS]  # the median norm is 1
    scaled = np.stack([x.numpy() * np.float32(c) for x, c in zip(members, clips, strict=True)])
    centre = np.sort(scaled + np.float32(0.0), axis=0)[3]
    limit = None
    for _ in range(3):
        squares = [
            exact.squared_distance(x, clip, torch.from_numpy(centre)) for x, clip in zip(members, clips, strict=True)
        ]
        distances = [math.sqrt(s) for s in squares]
        limit = limit or sorted(distances)[3]
        pulls = [t / sum(TOKENS) * min(1.0, limit / d) for t, d in zip(TOKENS, distances, strict=True)]
        rest = 1.0
        for pull in pulls:
            rest = rest - pull
        moved = centre * np.float32(rest)
        for x, pull, clip in zip(members, pulls, clips, strict=True):
            moved = moved + x.numpy() * np.float32(pull * clip)
        centre = moved
    assert reduce_part(members, TOKENS, NORMS, CLIP).numpy().tobytes() == centre.tobytes()


@every_rule
def test_an_absent_member_is_no_member(rule: Rule, members: list[torch.Tensor]) -> None:
    there = [0, 2, 3, 6]
    gaps = [x if i in there else None for i, x in enumerate(members)]
    rest = [members[i] for i in there], [TOKENS[i] for i in there], [NORMS[i] for i in there]
    assert torch.equal(reduce_part(gaps, TOKENS, NORMS, rule), reduce_part(*rest, rule))
    alone = reduce_part([None, members[1]], [5, 7], [9.0, 1.0], rule)
    assert torch.allclose(alone, members[1], rtol=1e-6, atol=0.0)
    with pytest.raises(ValueError, match="nobody"):
        reduce_part([None, None], [1, 1], [1.0, 1.0], rule)
    with pytest.raises(ValueError, match="as many token counts"):
        reduce_part(members, TOKENS[:-1], NORMS, rule)
    with pytest.raises(ValueError, match="norms"):
        reduce_part(members[:2], [1, 1], [1.0, math.nan], rule)


@every_robust_rule
def test_who_trained_nothing_has_no_vote(rule: Rule, members: list[torch.Tensor]) -> None:
    idle = [5 * members[0], *members, -3 * members[1]]
    with_idle = reduce_part(idle, [0, *TOKENS, 0], [100.0, *NORMS, 0.001], rule)
    assert torch.equal(with_idle, reduce_part(members, TOKENS, NORMS, rule))


@every_robust_rule
def test_the_order_of_members_decides_nothing_but_rounding(rule: Rule, members: list[torch.Tensor]) -> None:
    """Not a bit with a trimmed mean, whose additions follow the values; centred clipping adds in roster order."""
    order = [3, 0, 6, 2, 5, 1, 4]
    shuffled = [members[i] for i in order], [TOKENS[i] for i in order], [NORMS[i] for i in order]
    a, b = reduce_part(members, TOKENS, NORMS, rule), reduce_part(*shuffled, rule)
    assert torch.equal(a, b) == isinstance(rule, Trimmed)
    assert torch.allclose(a, b, rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize("rule", [MEAN, *ROBUST], ids=str)
def test_shifting_or_scaling_everybody_shifts_or_scales_the_result(rule: Rule, members: list[torch.Tensor]) -> None:
    equal = [1.0] * 7  # with a clip to the declared norm, which is about zero, nothing could be shifted
    plain = reduce_part(members, TOKENS, equal, rule)
    assert torch.equal(reduce_part([4 * x for x in members], TOKENS, equal, rule), 4 * plain)
    thrice = reduce_part([3 * x for x in members], TOKENS, [3.0] * 7, rule)
    assert torch.allclose(thrice, 3 * plain, rtol=1e-5, atol=1e-8)
    shift = torch.linspace(-0.01, 0.01, N)
    shifted = reduce_part([x + shift for x in members], TOKENS, equal, rule)
    assert torch.allclose(shifted, plain + shift, rtol=1e-5, atol=1e-7)


def small_vectors(n: int) -> st.SearchStrategy[list[list[float]]]:
    element = st.one_of(st.just(0.0), st.floats(-8.0, 8.0, width=32))
    return st.lists(st.lists(element, min_size=4, max_size=4), min_size=n, max_size=n)


@settings(max_examples=60, deadline=None)
@given(small_vectors(5), small_vectors(2), st.floats(1.0, 2.0**90, width=32))
def test_a_trimmed_mean_stays_among_the_honest_whatever_b_others_send(
    honest: list[list[float]], others: list[list[float]], huge: float
) -> None:
    vectors = torch.tensor(honest)
    liars = [torch.tensor(row) * huge for row in others]
    for rule in (Trimmed(0.3), MEDIAN):  # floor(0.3 * 7) = 2
        result = reduce_part([*vectors, *liars], [1] * 7, [1.0] * 7, rule)
        slack = vectors.abs().amax(0) * 1e-6
        assert bool((result >= vectors.amin(0) - slack).all()) and bool((result <= vectors.amax(0) + slack).all())


@settings(max_examples=60, deadline=None)
@given(small_vectors(5), small_vectors(2), st.floats(1.0, 2.0**90, width=32))
def test_however_far_a_liar_is_it_moves_centred_clipping_by_a_radius_per_iteration(
    honest: list[list[float]], others: list[list[float]], huge: float
) -> None:
    vectors = [*torch.tensor(honest)]
    liars = [torch.tensor(row) * huge for row in others]
    result = reduce_part([*vectors, *liars], [1] * 7, [1.0] * 7, CenteredClip(1.0, 3))
    # The median is among the honest in each of four elements, so at most this far from zero; and the fourth smallest of
    # the seven distances, the radius, is no larger than the largest honest one.
    longest = max(norm(x) for x in vectors)
    median, radius = 2.0 * longest, 3.0 * longest
    assert norm(result) <= (median + 3 * radius) * (1.0 + 1e-5)


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(1, 9))
def test_no_result_is_longer_than_the_rule_says(data: st.DataObject, n: int) -> None:
    vectors = [torch.tensor(row) for row in data.draw(small_vectors(n))]
    tokens = data.draw(st.lists(st.integers(1, 50), min_size=n, max_size=n))
    norms = [norm(x) * data.draw(st.sampled_from([1.0, 1.0, 3.0])) for x in vectors]
    for rule in RULES:
        assert norm(reduce_part(vectors, tokens, norms, rule)) <= rule.longest(tokens, norms) * (1 + 1e-5) + 1e-9


def test_longest_by_hand() -> None:
    tokens, norms = [1, 1, 2], [3.0, 4.0, 12.0]  # clipped to the median 4
    assert MEAN.longest(tokens, norms) == pytest.approx(0.25 * 3 + 0.25 * 4 + 0.5 * 4)
    assert SENDERS.longest(tokens, norms) == pytest.approx(math.sqrt(9 + 16 + 16))
    assert MEDIAN.longest(tokens, norms) == pytest.approx(math.sqrt((9 + 16 + 16) / 2))
    assert Trimmed(0.1).longest(tokens, norms) == pytest.approx(math.sqrt((9 + 16 + 16) / 3))
    assert CLIP.longest(tokens, norms) == pytest.approx(math.sqrt((9 + 16 + 16) / 2))
    tight = [torch.tensor([2.0, 0.0]), torch.tensor([2.0, 0.0]), torch.tensor([0.0, 0.0])]
    assert norm(reduce_part(tight, [1] * 3, [2.0, 2.0, 0.0], MEDIAN)) == MEDIAN.longest([1] * 3, [2.0, 2.0, 0.0]) == 2.0


def test_trimmed_by_hand() -> None:
    column = torch.tensor([[9.0], [-7.0], [1.0], [2.0], [4.0]])
    equal, tokens = [1.0] * 5, [10, 1, 1, 1, 1]
    assert reduce_part([*column], tokens, equal, Trimmed(0.0)).item() == pytest.approx(9 / 5)
    assert reduce_part([*column], tokens, equal, Trimmed(0.199)).item() == pytest.approx(9 / 5)  # floor(0.995) = 0
    assert reduce_part([*column], tokens, equal, Trimmed(0.2)).item() == pytest.approx(7 / 3)
    assert reduce_part([*column], tokens, equal, Trimmed(0.4)).item() == 2.0
    assert reduce_part([*column], tokens, equal, MEDIAN).item() == 2.0
    assert reduce_part([*column[:4]], tokens[:4], equal[:4], MEDIAN).item() == 1.5
    assert reduce_part([*column[:2]], tokens[:2], equal[:2], MEDIAN).item() == 1.0
    # The declared norm clips before the values are compared: 9 counts as 2.25, in the middle.
    assert reduce_part([*column], tokens, [4.0, 1.0, 1.0, 1.0, 1.0], Trimmed(0.4)).item() == 2.0
    assert reduce_part([*column[:3]], [1] * 3, [16.0, 1.0, 1.0], MEDIAN).item() == 0.5625


def test_centred_clipping_by_hand() -> None:
    """Of 0, 1, 2, 103 the median is 1.5, the distances 1.5, 0.5, 0.5, 101.5, the radius 1: -1, -0.5, 0.5, 1 pull."""
    column = torch.tensor([[0.0], [1.0], [2.0], [103.0]])
    once = reduce_part([*column], [1] * 4, [1.0] * 4, CenteredClip(1.0, 1))
    assert once.item() == pytest.approx(1.5)
    weighed = reduce_part([*column], [1, 1, 4, 2], [1.0] * 4, CenteredClip(1.0, 1))
    assert weighed.item() == pytest.approx(1.5 + (-1 - 0.5 + 4 * 0.5 + 2 * 1) / 8)
    wider = reduce_part([*column], [1] * 4, [1.0] * 4, CenteredClip(2.0, 1))
    assert wider.item() == pytest.approx(1.5 + (-1.5 - 0.5 + 0.5 + 2) / 4)


def test_a_wide_radius_is_the_mean(members: list[torch.Tensor]) -> None:
    mean = reduce_part(members, TOKENS, NORMS)
    wide = reduce_part(members, TOKENS, NORMS, CenteredClip(1e6, 1))
    assert torch.allclose(wide, mean, rtol=1e-5, atol=1e-8)


def test_most_who_agree_exactly_are_right() -> None:
    right, wrong = torch.tensor([1.0, -2.0, 0.5]), torch.tensor([9.0, 9.0, 9.0])
    for rule in (Trimmed(0.4), MEDIAN, CLIP):
        result = reduce_part([right, wrong, right, right, -wrong], [1] * 5, [1.0] * 5, rule)
        assert torch.allclose(result, right, rtol=1e-6)


def test_the_radius_follows_the_part(values: Values) -> None:
    """Parts of a model differ in size by orders; centred clipping does the same for each, up to their scale."""
    honest, liars = [values(5000, seed) + values(5000, 99) for seed in range(6)], [values(5000, 50)] * 2
    results = [
        reduce_part([*(x * scale for x in honest), *(-500 * scale * x for x in liars)], [1] * 8, [1.0] * 8, CLIP)
        for scale in (1.0, 2.0**-12)
    ]
    assert torch.equal(results[0] * 2.0**-12, results[1])


def test_mean_over_senders_by_hand() -> None:
    a, b, c = (
        torch.tensor([4.0, 4.0, 0.0, 0.0]),
        torch.tensor([8.0, 0.0, -0.0, 0.0]),
        torch.tensor([1.0, 0.0, 3.0, 0.0]),
    )
    everybody = reduce_part([a, b, c], [1, 1, 2], [1.0] * 3, MEAN)
    assert everybody.tolist() == [3.5, 1.0, 1.5, 0.0]
    assert reduce_part([a, b, c], [1, 1, 2], [1.0] * 3, SENDERS).tolist() == [3.5, 4.0, 3.0, 0.0]
    # A clipped member speaks more softly, alone too: what the clip took goes to nobody.
    assert reduce_part([a, b, c], [1, 1, 2], [2.0, 1.0, 1.0], SENDERS).tolist() == [3.0, 2.0, 3.0, 0.0]
    assert reduce_part([a, b], [0, 1], [1.0] * 2, SENDERS).tolist() == [8.0, 0.0, 0.0, 0.0]


def test_where_everybody_sends_both_means_are_one(values: Values) -> None:
    dense = [values(10_000, seed).abs_().add_(1e-6) for seed in range(5)]
    both = [reduce_part(dense, TOKENS[:5], NORMS[:5], rule) for rule in (MEAN, SENDERS)]
    assert torch.allclose(*both, rtol=1e-5, atol=0.0)


def test_what_sparse_zeros_mean(values: Values) -> None:
    """Each of 16 sends its own 1/16 of the elements. The mean keeps a sixteenth of each, centred clipping as much; a
    trimmed mean drops all of it, with b = 1 already."""
    full = values(1600, 1) + 2.0**-9
    sparse = [torch.where(torch.arange(1600) % 16 == i, full, 0.0) for i in range(16)]
    shape = [1] * 16, [1.0] * 16
    assert torch.equal(reduce_part(sparse, *shape, MEAN), full / 16)
    assert torch.equal(reduce_part(sparse, *shape, SENDERS), full)
    assert torch.allclose(reduce_part(sparse, *shape, CenteredClip(1.1, 1)), full / 16, rtol=1e-6, atol=0.0)
    for rule in (Trimmed(1 / 16), MEDIAN):
        assert not reduce_part(sparse, *shape, rule).any()


@pytest.mark.parametrize("fraction", [-0.1, 0.51, math.nan])
def test_refuses_bad_fractions(fraction: float) -> None:
    with pytest.raises(ValueError, match="fraction"):
        Trimmed(fraction)


@pytest.mark.parametrize(("radius", "iterations"), [(0.0, 1), (-1.0, 1), (math.inf, 1), (math.nan, 1), (1.0, 0)])
def test_refuses_bad_radii_and_iterations(radius: float, iterations: int) -> None:
    with pytest.raises(ValueError, match="radius"):
        CenteredClip(radius, iterations)


def test_what_a_result_lost_is_owed_by_the_sum_it_was_made_of() -> None:
    """Brought in again by a member at 1 / its weight, it makes up for the loss; where the rule divides, by less."""
    a, b, lost = torch.tensor([2.0, 0.0, 1.0]), torch.tensor([4.0, 2.0, 0.0]), torch.tensor([0.5, 0.5, 0.25])
    tokens, equal = [1, 3], [1.0, 1.0]
    assert torch.equal(MEAN.owed(lost, [a, b], tokens), lost)
    owed = SENDERS.owed(lost, [a, b], tokens)
    assert owed.tolist() == [0.5, 0.375, 0.0625]
    for rule in (MEAN, SENDERS):
        again = reduce_part([a + rule.owed(lost, [a, b], tokens) / 0.25, b], tokens, equal, rule)
        gained = (again - reduce_part([a, b], tokens, equal, rule))[[0, 2]]  # where the member is among the senders
        assert torch.allclose(gained, lost[[0, 2]])
    assert not MEDIAN.owed(lost, [a, b], tokens).any() and not CLIP.owed(lost, [a, b], tokens).any()

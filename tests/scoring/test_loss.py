import math

import numpy as np
import pytest
import torch

from subnet.scoring.loss import LossScore, apply_fraction, excess, paired, plausible


def test_paired_is_the_mean_drop_and_its_standard_error() -> None:
    mean, error = paired(np.array([3.0, 5.0, 4.0, 8.0]), np.array([2.0, 4.5, 4.0, 6.5]))
    assert mean == 0.75
    assert error == pytest.approx(math.sqrt(5 / 12) / 2)


def test_pairing_cancels_the_spread_between_samples() -> None:
    rng = np.random.default_rng(0)
    before = rng.normal(4.0, 1.0, 64)
    mean, error = paired(before, before - 0.01 + rng.normal(0, 0.005, 64))
    assert mean > 10 * error


def test_zeros_give_exactly_zero() -> None:
    losses = np.random.default_rng(1).normal(4.0, 1.0, 16)
    assert paired(losses, losses.copy()) == (0.0, 0.0)


def test_one_sample_proves_nothing() -> None:
    mean, error = paired(np.array([3.0]), np.array([1.0]))
    assert (mean, error) == (2.0, math.inf)
    assert not LossScore(mean, error, mean, error).evident(2.0)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_contribution_that_breaks_the_model_ranks_last(bad: float) -> None:
    drop = paired(np.array([3.0, 3.0]), np.array([2.0, bad]))
    assert drop == (-math.inf, 0.0)
    assert not LossScore(*drop, *drop).evident(0.0)


@pytest.mark.parametrize(
    ("before", "after"),
    [([], []), ([1.0], [1.0, 2.0]), ([[1.0]], [[1.0]]), ([math.nan, 1.0], [1.0, 1.0]), ([math.inf, 1.0], [1.0, 1.0])],
)
def test_paired_refuses_what_is_not_two_rows_with_a_finite_baseline(before: list, after: list) -> None:
    with pytest.raises(ValueError, match=r"losses|baseline"):
        paired(np.array(before), np.array(after))


@pytest.mark.parametrize(
    ("own", "held_out", "evident"),
    [
        ((0.10, 0.01), (0.10, 0.01), True),  # equal drops: honest
        ((0.12, 0.01), (0.10, 0.01), True),  # better on its own data
        ((0.08, 0.01), (0.10, 0.01), True),  # worse within two standard errors of the difference
        ((0.05, 0.01), (0.10, 0.01), False),  # its own data stands out as untrained
        ((0.10, 0.01), (0.015, 0.01), False),  # no significant help
        ((0.0, 0.0), (0.0, 0.0), False),  # zeros
        ((-0.01, 0.01), (-0.01, 0.01), False),  # harm
    ],
)
def test_evident(own: tuple[float, float], held_out: tuple[float, float], evident: bool) -> None:
    assert LossScore(*own, *held_out).evident(2.0) is evident


@pytest.mark.parametrize("fields", [(math.nan, 0, 0, 0), (math.inf, 0, 0, 0), (0, -1, 0, 0), (0, 0, 0, math.nan)])
def test_loss_score_refuses_what_no_measurement_gives(fields: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="must be"):
        LossScore(*fields)


def drops(rng: np.random.Generator, learnable: np.ndarray, factor: float) -> np.ndarray:
    return factor * 0.05 * (learnable + rng.normal(0, 0.2, len(learnable)))


@pytest.mark.parametrize("factor", [0.3, 1.0])
def test_excess_is_what_training_on_the_samples_adds_to_how_learnable_they_are(factor: float) -> None:
    """A sample of easy data drops further whoever trained; only what its common part does not explain counts."""
    rng = np.random.default_rng(0)
    own, held_out = rng.normal(1.6, 1.0, 64), rng.normal(1.0, 1.0, 64)
    common = 0.05 * own, 0.05 * held_out
    x, error = excess(drops(rng, own, factor), drops(rng, held_out, factor), *common)
    assert abs(x) < 2.5 * error
    x, error = excess(drops(rng, own, factor) + 0.02, drops(rng, held_out, factor), *common)
    assert x == pytest.approx(0.02, abs=2.5 * error) and x > 4 * error


def test_excess_pairs_samples() -> None:
    """Unpaired, the same difference of means would be within one standard error."""
    rng = np.random.default_rng(1)
    own, held_out = rng.normal(1.0, 1.0, 16), rng.normal(1.0, 1.0, 32)
    x, error = excess(0.05 * own + 0.01, 0.05 * held_out, 0.05 * own, 0.05 * held_out)
    assert x == pytest.approx(0.01, abs=1e-3) and error < 0.001 < 0.05 * own.std() / 4


def test_excess_says_nothing_where_there_is_nothing_to_compare_or_a_loss_broke() -> None:
    one, two, broken = np.ones(1), np.ones(2), np.array([1.0, -np.inf])
    assert excess(one, two, one, two) == excess(broken, two, two, two) == excess(two, one, two, one) == (0.0, math.inf)
    x, error = excess(np.array([3.0, 3.0]), two, two, -two)  # a harmful common update explains nothing: k is 1
    assert (x, error) == (0.0, 0.0)


def test_where_a_round_has_a_common_update_own_data_is_left_to_the_odds() -> None:
    assert LossScore(0.0, 0.01, 0.1, 0.01, 0.0, 0.01).evident(1.0)
    assert not LossScore(0.0, 0.01, 0.1, 0.01).evident(1.0)
    assert not LossScore(0.2, 0.01, 0.0, 0.0, 0.2, 0.01).evident(1.0)


@pytest.mark.parametrize("values", [(math.nan, 0.1), (math.inf, 0.1), (0.0, -0.1), (0.0, math.nan)])
def test_loss_score_refuses_an_excess_that_no_measurement_gives(values: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="excess"):
        LossScore(0.0, 0.0, 0.0, 0.0, *values)


def test_plausible_shortens_what_is_longer_than_its_steps_explain_and_nothing_else() -> None:
    assert plausible([1.0, 1.0, 1.0, 1000.0], [10] * 4) == [1.0, 1.0, 1.0, 0.001]
    # Slower ones, whether lengths grow in proportion to the steps or with their square root:
    assert plausible([4.0, 4.0, 4.0, 1.0], [16, 16, 16, 4]) == [1.0] * 4
    assert plausible([4.0, 4.0, 4.0, 2.0], [16, 16, 16, 4]) == [1.0] * 4
    # A fast one among slow ones keeps its length, which the plain clip at the median would take from it.
    assert plausible([1.0, 1.0, 1.0, 4.0], [4, 4, 4, 16]) == [1.0] * 4
    assert plausible([1.0, 1.0, 1.0, 8.0], [4, 4, 4, 16]) == [1.0, 1.0, 1.0, 0.5]
    assert plausible([0.0, 0.0, 1.0], [4, 4, 4]) == [1.0] * 3
    assert plausible([0.0], [4]) == [1.0] and plausible([], []) == []


def test_apply_fraction_steps_against_the_pseudo_gradient_and_keeps_its_arguments() -> None:
    for make in (np.array, torch.tensor):
        theta, delta = make([1.0, 2.0]), make([0.5, -1.0])
        assert apply_fraction(theta, delta, 0.5).tolist() == [0.75, 2.5]
        assert theta.tolist() == [1.0, 2.0] and delta.tolist() == [0.5, -1.0]


def test_apply_fraction_does_not_broadcast() -> None:
    with pytest.raises(ValueError, match="differ in shape"):
        apply_fraction(np.zeros(3), np.zeros(1), 0.5)

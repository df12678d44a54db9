import math

import numpy as np
import pytest
import torch

from subnet.scoring.loss import LossScore, apply_fraction, paired


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


def test_apply_fraction_steps_against_the_pseudo_gradient_and_keeps_its_arguments() -> None:
    for make in (np.array, torch.tensor):
        theta, delta = make([1.0, 2.0]), make([0.5, -1.0])
        assert apply_fraction(theta, delta, 0.5).tolist() == [0.75, 2.5]
        assert theta.tolist() == [1.0, 2.0] and delta.tolist() == [0.5, -1.0]


def test_apply_fraction_does_not_broadcast() -> None:
    with pytest.raises(ValueError, match="differ in shape"):
        apply_fraction(np.zeros(3), np.zeros(1), 0.5)

"""The outer step, bit for bit against numpy, with pinned hashes, and against torch's own Nesterov SGD."""

from collections.abc import Callable
from hashlib import blake2b

import numpy as np
import pytest
import torch

from subnet.diloco.outer import outer_step

N = 300_007
"""More than two chunks, and no multiple of any vector width."""


def in_numpy(
    theta: np.ndarray, u: np.ndarray, d: np.ndarray, lr: float, mu: float, nesterov: bool
) -> tuple[np.ndarray, np.ndarray]:
    lr32, mu32 = np.float32(lr), np.float32(mu)
    u = u * mu32 + d
    step = (u * mu32 + d) * lr32 if nesterov else u * lr32
    return theta - step, u


@pytest.mark.parametrize(
    ("nesterov", "golden"),
    [(True, "9808b2e3c0dc22d082baab5ad0ce642b"), (False, "f72119847d1f928062bf57afb0f3a036")],
)
def test_golden_trajectory(
    values: Callable[..., torch.Tensor], threads: Callable[[int], None], nesterov: bool, golden: str
) -> None:
    for count in (1, 2, 3):
        threads(count)
        theta, u = values(N, 0, 1.0), torch.zeros(N)
        theta_np, u_np = theta.numpy(), u.numpy()
        for step in range(3):
            d = values(N, 10 + step)
            theta, u = outer_step(theta, u, d, 0.7, 0.9, nesterov)
            theta_np, u_np = in_numpy(theta_np, u_np, d.numpy(), 0.7, 0.9, nesterov)
        assert np.array_equal(theta.numpy().view(np.int32), theta_np.view(np.int32))
        assert np.array_equal(u.numpy().view(np.int32), u_np.view(np.int32))
        assert blake2b(theta.numpy().tobytes() + u.numpy().tobytes(), digest_size=16).hexdigest() == golden


def test_the_golden_data_would_show_a_fused_step(values: Callable[..., torch.Tensor]) -> None:
    theta, u, d = values(N, 0, 1.0), values(N, 1), values(N, 2)
    lr, mu = float(np.float32(0.7)), float(np.float32(0.9))
    fused_u = (u.double() * mu + d.double()).float()
    fused_step = (fused_u.double() * mu + d.double()).float()
    fused_theta = (theta.double() - fused_step.double() * lr).float()
    right_theta, right_u = outer_step(theta, u, d, 0.7, 0.9)
    assert not torch.equal(fused_u, right_u)
    assert not torch.equal(fused_theta, right_theta)


@pytest.mark.parametrize("nesterov", [True, False])
def test_is_sgd_with_momentum(values: Callable[..., torch.Tensor], nesterov: bool) -> None:
    parameter = torch.nn.Parameter(values(1000, 0, 1.0))
    sgd = torch.optim.SGD([parameter], lr=0.7, momentum=0.9, nesterov=nesterov)
    theta, u = parameter.detach().clone(), torch.zeros(1000)
    for step in range(5):
        d = values(1000, 20 + step)
        parameter.grad = d.clone()
        sgd.step()
        theta, u = outer_step(theta, u, d, 0.7, 0.9, nesterov)
    assert torch.allclose(theta, parameter.detach(), rtol=0.0, atol=1e-6)


def test_leaves_its_arguments_alone(values: Callable[..., torch.Tensor]) -> None:
    given = [values(1000, seed) for seed in range(3)]
    before = [x.clone() for x in given]
    theta, u = outer_step(*given, lr=0.7, mu=0.9)
    assert all(torch.equal(a, b) for a, b in zip(given, before, strict=True))
    assert theta.data_ptr() != given[0].data_ptr() and u.data_ptr() != given[1].data_ptr()


def test_shapes_must_agree() -> None:
    with pytest.raises(ValueError, match="shapes differ"):
        outer_step(torch.zeros(8), torch.zeros(8), torch.zeros(1), 0.7, 0.9)

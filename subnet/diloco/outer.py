"""The outer optimizer: SGD with Nesterov momentum on the averaged pseudo-gradient, the same bits on every machine.

Not torch.optim.SGD, whose kernels may fuse or reorder. DiLoCo, arXiv 2311.08105, algorithm 1; torch's momentum
convention (no dampening).
"""

from __future__ import annotations

import torch
from torch import Tensor

# Elements handled at once: what one chunk needs stays in a core's cache. It cannot change a bit of the result.
_CHUNK = 2**17


def outer_step(
    theta: Tensor, momentum: Tensor, delta: Tensor, lr: float, mu: float, nesterov: bool = True
) -> tuple[Tensor, Tensor]:
    """New `(theta, momentum)`, fp32 `[n]`, the arguments left as they are:

        u' = mu * u + d,    theta' = theta - lr * (d + mu * u')    (plain momentum: theta - lr * u')

    `delta` is the pseudo-gradient (old minus new parameters, averaged). `lr` and `mu` are rounded to fp32; every
    element sees single IEEE fp32 multiplies and adds in the order written, so x86, Arm and GPU agree.
    """
    if not theta.shape == momentum.shape == delta.shape:
        raise ValueError(f"shapes differ: theta {theta.shape}, momentum {momentum.shape}, delta {delta.shape}")
    new_theta, new_momentum = torch.empty_like(theta), torch.empty_like(momentum)
    scratch = torch.empty_like(theta[:_CHUNK])
    for start in range(0, theta.numel(), _CHUNK):
        chunk = slice(start, start + _CHUNK)
        d, u = delta[chunk], new_momentum[chunk]
        step = scratch[: d.numel()]
        torch.mul(momentum[chunk], mu, out=u)
        u.add_(d)
        if nesterov:
            torch.mul(u, mu, out=step)
            step.add_(d)
            step.mul_(lr)
        else:
            torch.mul(u, lr, out=step)
        torch.sub(theta[chunk], step, out=new_theta[chunk])
    return new_theta, new_momentum

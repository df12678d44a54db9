"""Skill ratings from rank orders: OpenSkill's Plackett-Luce model (Weng and Lin, JMLR 12, 2011, algorithm 4).

Not a measure of how much a peer helps, only of how surely it helps more than others: losses are noisy and
their scale drifts during training, ranks do neither. From Gauntlet (arXiv:2505.21684).
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

from openskill.models import PlackettLuce

PRIOR_MU = 25.0
PRIOR_SIGMA = PRIOR_MU / 3
NOTHING = ""
"""Plays in every match in place of a hotkey: zeros, whose loss drop is 0. Who cannot beat it earns nothing."""


class Rating(NamedTuple):
    """A Gaussian belief about a peer's skill: mean and standard deviation, in rating points."""

    mu: float = PRIOR_MU
    sigma: float = PRIOR_SIGMA


def ranks_of(improvements: Mapping[str, float]) -> dict[str, int]:
    """hotkey -> rank, 1 for the largest improvement; equal improvements share a rank and the next is skipped."""
    ordered = sorted(improvements.values(), reverse=True)
    first: dict[float, int] = {}
    for place, value in enumerate(ordered, start=1):
        first.setdefault(value, place)
    return {hotkey: first[value] for hotkey, value in improvements.items()}


def beats(rating: Rating, other: Rating, beta: float) -> float:
    """Probability that a performance of `rating` is better than one of `other`, both performances spread by `beta`."""
    spread = math.sqrt(2 * beta**2 + rating.sigma**2 + other.sigma**2)
    return 0.5 * (1 + math.erf((rating.mu - other.mu) / spread / math.sqrt(2)))


def update(
    ratings: Mapping[str, Rating], improvements: Mapping[str, float], beta: float, tau: float
) -> dict[str, Rating]:
    """`ratings` after one match between the hotkeys of `improvements` (any order; -inf ranks last).

    A hotkey without a rating enters with the prior; those who did not play keep theirs. `beta` is the spread of one
    performance around the skill, `tau` is added to every player's sigma per match so that it never freezes, both
    in rating points. A match needs two: one player alone learns nothing. Raises ValueError on NaN.

    Ranks start at 1 and go in as ranks: given as `scores`, openskill before 6.2 read a 0.0 as "missing" and put
    the place in the list instead, so that a contribution of zeros could win.
    """
    if any(math.isnan(value) for value in improvements.values()):
        raise ValueError("an improvement is NaN; an unmeasurable one is -inf")
    players = sorted(improvements)
    if len(players) < 2:
        return {**{hotkey: Rating() for hotkey in players}, **ratings}
    model = PlackettLuce(mu=PRIOR_MU, sigma=PRIOR_SIGMA, beta=beta, tau=tau)
    ranks = ranks_of(improvements)
    teams = [[model.rating(*ratings.get(hotkey, Rating()))] for hotkey in players]
    rated = model.rate(teams, ranks=[float(ranks[hotkey]) for hotkey in players])
    moved = {hotkey: Rating(team[0].mu, team[0].sigma) for hotkey, team in zip(players, rated, strict=True)}
    return {**ratings, **moved}

"""What each rule withstands: 16 contributors, some of them attackers, each rule's result against the honest mean.

    python tests/diloco/test_aggregate_attacks.py        prints the table of docs/aggregation.md

Sources: ALIE, Baruch et al., arXiv 1902.06156; IPM, Xie et al., arXiv 1903.03936. Values from outside (NaN, infinity)
never get this far: the codecs refuse them.
"""

import math
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch

from subnet.diloco.aggregate import CenteredClip, Mean, Rule, Trimmed, norm, reduce_part

CONTRIBUTORS, ELEMENTS = 16, 2**14
SHARES = (2, 4, 7)
"""Attackers: an eighth, a quarter, seven sixteenths."""
RULES: dict[str, Rule] = {
    "mean": Mean(),
    "trimmed 1/4": Trimmed(0.25),
    "median": Trimmed(0.5),
    "centred clip": CenteredClip(1.0, 3),
}
DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "aggregation.md"

Vectors = list[torch.Tensor]


class Attack(NamedTuple):
    """What `count` attackers send, who know all honest vectors; and by how much their declared norms are too small."""

    send: Callable[[Vectors, int, np.random.Generator], Vectors]
    understated: float = 1.0


class Outcome(NamedTuple):
    cosine: float
    error: float
    """|result - honest mean| / |honest mean|."""


def honest_vectors(count: int, random: np.random.Generator) -> Vectors:
    """A common direction and noise of its own of the same length in each: two of them have cosine 1/2."""
    common = normal(random)
    return [common + normal(random) for _ in range(count)]


def normal(random: np.random.Generator) -> torch.Tensor:
    return torch.from_numpy(random.standard_normal(ELEMENTS, dtype=np.float32))


def mean_of(vectors: Vectors) -> torch.Tensor:
    return torch.stack(vectors).mean(0)


def little_is_enough(honest: Vectors, count: int, _: np.random.Generator) -> Vectors:
    """Mean less 1.5 standard deviations per element: among the honest values, and all attackers alike."""
    return [mean_of(honest) - 1.5 * torch.stack(honest).std(0)] * count


def scaled(factor: float) -> Callable[[Vectors, int, np.random.Generator], Vectors]:
    """An honest vector of their own times `factor`, as if they had trained (on what some honest one has)."""
    return lambda honest, count, _: [factor * x for x in honest[:count]]


def of_the_mean(factor: float) -> Callable[[Vectors, int, np.random.Generator], Vectors]:
    return lambda honest, count, _: [factor * mean_of(honest)] * count


ATTACKS: dict[str, Attack] = {
    "none": Attack(lambda *_: []),
    "sends zeros": Attack(scaled(0.0)),
    "noise of honest length": Attack(lambda _, count, random: [math.sqrt(2.0) * normal(random) for _ in range(count)]),
    "sign flip": Attack(scaled(-1.0)),
    "× -1000, norm declared": Attack(scaled(-1000.0)),
    "× -4, norm understated 4 times": Attack(scaled(-4.0), 4.0),
    "× -1000, norm understated 1000 times": Attack(scaled(-1000.0), 1000.0),
    "ALIE, z = 1.5": Attack(little_is_enough),
    "IPM, ε = 0.5": Attack(of_the_mean(-0.5)),
    "IPM, ε = 1.1": Attack(of_the_mean(-1.1)),
}


@cache
def outcome(attack: str, count: int, rule: str) -> Outcome:
    """Of `count` attackers among the 16; the same random numbers for every rule."""
    random = np.random.Generator(np.random.Philox(38))
    honest = honest_vectors(CONTRIBUTORS - count, random)
    sent = ATTACKS[attack].send(honest, count, random)
    norms = [norm(x) for x in honest] + [norm(x) / ATTACKS[attack].understated for x in sent]
    members = [*honest, *sent]
    result, wanted = reduce_part(members, [1000] * len(members), norms, RULES[rule]), mean_of(honest)
    cosine = float(torch.dot(result, wanted)) / max(norm(result) * norm(wanted), 1e-30)
    return Outcome(cosine, norm(result - wanted) / norm(wanted))


def cases(attacks: Iterable[str] = ATTACKS, shares: Iterable[int] = SHARES) -> list[tuple[str, int]]:
    return [(attack, count) for attack in attacks for count in ((0,) if attack == "none" else shares)]


def table() -> list[str]:
    """Rows of cosine / relative error, as Markdown."""
    rows = [["attack", "of 16", *RULES], ["---", "---", *("---" for _ in RULES)]]
    for attack, count in cases():
        outcomes = [outcome(attack, count, rule) for rule in RULES]
        rows.append([attack, str(count), *(f"{o.cosine:.2f} / {o.error:.2f}" for o in outcomes)])
    return ["| " + " | ".join(row) + " |" for row in rows]


def test_without_attackers_centred_clipping_costs_nothing_and_trimming_little() -> None:
    assert outcome("none", 0, "mean").error < 0.01
    assert outcome("none", 0, "centred clip").error < 0.01
    assert outcome("none", 0, "trimmed 1/4").error < 0.15
    assert outcome("none", 0, "median").error < 0.2


@pytest.mark.parametrize(("attack", "count"), cases(ATTACKS.keys() - {"none"}))
def test_centred_clipping_errs_in_proportion_to_the_attackers_share(attack: str, count: int) -> None:
    """Where the honest pull, share 1 - a, balances the attackers', share a times the radius: a / (1 - a) radii.

    The radius is the honest distance, here the length of the honest mean; a quarter of slack for its estimate.
    """
    assert outcome(attack, count, "centred clip").error <= 1.25 * count / (CONTRIBUTORS - count)


@pytest.mark.parametrize(("attack", "count"), cases(ATTACKS.keys() - {"none"}, (2, 4)))
def test_up_to_a_quarter_every_robust_rule_keeps_the_direction(attack: str, count: int) -> None:
    for rule, cosine in (("trimmed 1/4", 0.9), ("median", 0.9), ("centred clip", 0.93)):
        assert outcome(attack, count, rule).cosine > cosine


@pytest.mark.parametrize("count", SHARES)
def test_the_mean_belongs_to_whoever_lies_about_its_norm(count: int) -> None:
    lie = "× -1000, norm understated 1000 times"
    assert outcome(lie, count, "mean").cosine < 0.0 and outcome(lie, count, "mean").error > 100.0
    for rule, cosine in (("median", 0.75), ("centred clip", 0.9)):
        assert outcome(lie, count, rule).cosine > cosine


def test_even_a_lie_that_parts_let_through_turns_the_mean_around() -> None:
    """A part's norm is checked against the declared one of the whole: 16 parts leave room for a factor of four."""
    assert outcome("× -4, norm understated 4 times", 4, "mean").cosine < 0.0
    assert outcome("× -4, norm understated 4 times", 4, "centred clip").cosine > 0.98


@pytest.mark.parametrize("count", SHARES)
def test_the_clip_to_the_declared_norm_is_what_the_mean_has(count: int) -> None:
    """Attackers who declare what they send weigh no more than their number, however large it is."""
    large, flipped = outcome("× -1000, norm declared", count, "mean"), outcome("sign flip", count, "mean")
    assert large.error < 1.0 and large.error == pytest.approx(flipped.error, rel=0.05)


def test_trimming_breaks_once_there_are_more_attackers_than_it_drops() -> None:
    lie = "× -1000, norm understated 1000 times"
    assert outcome(lie, 4, "trimmed 1/4").error < 0.5
    assert outcome(lie, 7, "trimmed 1/4").error > 100.0


def test_little_is_enough_against_every_rule_and_most_against_the_median() -> None:
    """No rule that looks at one round alone tells it from honest values; the loss score does."""
    errors = [outcome("ALIE, z = 1.5", 7, rule).error for rule in RULES]
    assert min(errors) > 0.4 and max(errors) == outcome("ALIE, z = 1.5", 7, "median").error > 0.8


def test_the_documented_table_is_this_one() -> None:
    written = [line for line in DOCUMENT.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    first = written.index(table()[0])
    for documented, measured in zip(written[first:], table(), strict=False):
        cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in (documented, measured)]
        assert cells[0][:2] == cells[1][:2]
        for a, b in zip(cells[0][2:], cells[1][2:], strict=True):
            if " / " in a:
                assert [float(x) for x in a.split("/")] == pytest.approx([float(x) for x in b.split("/")], abs=0.0101)
    assert len(written[first:]) >= len(table())


if __name__ == "__main__":
    print("\n".join(table()))

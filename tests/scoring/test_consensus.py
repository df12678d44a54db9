"""What Yuma consensus makes of validators: who copies weights is paid less than who measures, once they are hidden."""

from __future__ import annotations

from .conftest import HALF, HONEST, Miner

TEMPO_ROUNDS = 6
HONEST_VALIDATORS = 4


def town(tempo: int) -> dict[str, Miner]:
    """Twelve miners; one leaves and one comes each tempo, and one changes between all and half of the work."""
    crew = {f"m{n}": HONEST for n in range(tempo, tempo + 12)}
    changing = f"m{tempo + 6}"
    return crew | {changing: HALF if tempo % 2 else HONEST}


def dividends_of_a_copier(season, epoch_of, hidden_for: int) -> tuple[float, float]:
    """(a copier's dividends, an honest validator's) of equal stake, summed over 24 tempos less those that are hidden.

    `hidden_for`: tempos until weights are revealed. They count then, everybody's; what a copier can see when it sets
    its own are those that were revealed last, or with 0 those that the others just set.
    """
    played, tempos = season(4), 24
    uids: dict[str, int] = {}
    set_by_honest: list[dict[int, float]] = []
    bonds, copied, honest = None, 0.0, 0.0
    for tempo in range(tempos):
        paid = played.play(town(tempo), TEMPO_ROUNDS)
        set_by_honest.append({uids.setdefault(hotkey, len(uids)): share for hotkey, share in paid.items()})
    for tempo in range(2 * hidden_for, tempos):
        counts, seen_then = set_by_honest[tempo - hidden_for], set_by_honest[tempo - 2 * hidden_for]
        result = epoch_of([counts] * HONEST_VALIDATORS + [seen_then], len(uids), bonds)
        bonds = result.bonds
        copied += float(result.dividends[HONEST_VALIDATORS])
        honest += float(result.dividends[0])
    return copied, honest


def test_a_lazy_validator_earns_as_much_as_an_honest_one_while_weights_are_public(season, epoch_of) -> None:
    copied, honest = dividends_of_a_copier(season, epoch_of, hidden_for=0)
    assert copied == honest


def test_with_commit_reveal_a_lazy_validator_earns_less(season, epoch_of) -> None:
    losses = []
    for hidden_for in (1, 3):
        copied, honest = dividends_of_a_copier(season, epoch_of, hidden_for)
        losses.append(1 - copied / honest)
    assert losses[0] > 0.05 and losses[1] > losses[0]

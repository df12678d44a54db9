"""What a member did of its part in an exchange, from signed words."""

from __future__ import annotations

from dataclasses import replace

import torch

from subnet.exchange.butterfly import PartResult
from subnet.exchange.commitment import Commitment
from subnet.exchange.roster import Roster
from subnet.exchange.round import Update
from subnet.validator.participation import participation

NAMES = ("a", "b", "c", "d")
ROSTER = Roster(
    7, "", b"r" * 32, b"s" * 32,
    tuple(Commitment(name, b"r" * 32, 1.0, 100, 10, b"s" * 32) for name in (*NAMES, "extra")), 4,
)  # fmt: skip


def word(part: int, included: str, reducer: str | None = None) -> PartResult:
    return PartResult(part, reducer or NAMES[part], b"p" * 32, ROSTER.root, frozenset(included))


def update(*words: PartResult, **changes: object) -> Update:
    by_part: dict[int, dict[str, PartResult]] = {}
    for each in words:
        by_part.setdefault(each.part, {})[each.reducer] = each
    return Update(ROSTER, torch.empty(0), by_part, {each.part: each for each in words}, **changes)  # type: ignore[arg-type]


ALL = [word(part, "abcd") for part in range(4)]


def test_who_delivers_and_reduces_all_has_all() -> None:
    assert [participation(update(*ALL), name, True, 1) for name in NAMES] == [1.0] * 4


def test_who_only_answers_and_delivers_nothing_has_nothing() -> None:
    words = [word(0, "bcd", "a"), *(word(part, "bcd") for part in range(1, 4))]
    assert participation(update(*words), "a", False, 1) == 0.0
    # Nor who shows its contribution to this validator alone, or to a few reducers as well.
    assert participation(update(*words), "a", True, 1) == 0.0
    assert participation(update(word(1, "abcd"), words[0], *words[2:]), "a", True, 1) == 0.0


def test_parts_that_were_not_delivered_count_by_their_share() -> None:
    words = [word(0, "abcd"), word(1, "abcd"), word(2, "bcd"), word(3, "bcd")]
    assert participation(update(*words), "a", False, 1) == 0.5
    assert participation(update(*words), "a", True, 1) == 0.75
    assert participation(update(*words), "b", True, 1) == 1.0


def test_a_single_reducer_that_leaves_somebody_out_costs_it_nothing() -> None:
    words = [word(0, "abcd"), word(1, "bcd"), word(2, "abcd"), word(3, "abcd")]
    assert participation(update(*words), "a", True, 1) == 1.0
    assert participation(update(*words), "a", False, 1) == 0.75


def test_a_part_that_was_not_reduced_or_could_not_be_had_counts_half() -> None:
    assert participation(update(*ALL[1:], missing=[0]), "a", True, 1) == 0.5
    assert participation(update(*ALL, missing=[0]), "a", True, 1) == 0.5
    assert participation(update(*ALL[1:], missing=[0]), "b", True, 1) == 1.0


def test_who_has_no_part_to_reduce_is_not_punished_for_it() -> None:
    hidden = replace(ROSTER, commitments=(*ROSTER.commitments[:3], replace(ROSTER.commitments[3], rate=0)), averaged=4)
    assert hidden.duties("d", 3, 2) == [] and hidden.duties("c", 3) == [2]
    words = [word(part, "abcd") for part in range(3)]
    assert [participation(replace(update(*words), roster=hidden), name, True, 1) for name in NAMES] == [1.0] * 4
    undelivered = replace(update(*(word(part, "abc") for part in range(3))), roster=hidden)
    assert participation(undelivered, "d", False, 1) == 0.0
    # A model of fewer leaves than there are peers has no part for the last of them.
    assert participation(update(*words), "d", True, 1) == 1.0


def test_with_spare_reducers_each_owes_its_own_word_on_every_part_it_has() -> None:
    duties = {name: [p for p in range(4) if name in ROSTER.reducers(p, 2)] for name in NAMES}
    assert all(len(parts) == 2 for parts in duties.values())
    words = [word(part, "abcd", reducer) for part in range(4) for reducer in ROSTER.reducers(part, 2)]
    assert participation(update(*words), "a", True, 2) == 1.0
    lazy = [w for w in words if w.reducer != "a" or w.part != duties["a"][0]]
    assert participation(update(*lazy), "a", True, 2) == 0.75


def test_a_proven_lie_costs_all_of_it_and_the_liars_word_counts_for_nobody() -> None:
    faults = {"b"}
    words = [ALL[0], word(1, "b"), *ALL[2:]]
    assert participation(update(*words, faults=faults), "b", True, 1) == 0.0
    assert participation(update(*words, faults=faults), "a", False, 1) == 0.75  # the word followed still counts
    spare = [*words, word(1, "abcd", "c")]
    assert participation(update(*spare, faults=faults), "a", False, 1) == 1.0


def test_where_no_word_was_heard_nothing_is_said_and_who_is_not_averaged_has_only_to_deliver() -> None:
    assert participation(update(), "a", True, 1) is None
    assert participation(update(*ALL), "extra", True, 1) == 1.0
    assert participation(update(*ALL), "extra", False, 1) == 0.0

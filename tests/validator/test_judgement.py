"""One round judged without a network: what the observations say of honest and other contributions."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from subnet.diloco.codec import CodecError, encode_tree
from subnet.swarm.records import BadRecord
from subnet.validator.judgement import WORTHLESS, Case, Judge, opened

from .conftest import Swarm

Deltas = dict[str, torch.Tensor]


def heard(judge: Judge, case: Case, deltas: dict[str, torch.Tensor | None]):
    judgement = judge.begin(case)
    for commitment in judgement.wanted:
        judgement.hear(commitment, deltas[commitment.hotkey])
    return judgement


@pytest.fixture
def trained(swarm: Swarm) -> Deltas:
    return {f"h{uid}": swarm.train(uid, swarm.run.train.inner_steps) for uid in range(3)}


def test_honest_contributions_show_work_and_noise_does_not(swarm: Swarm, trained: Deltas):
    generator = torch.Generator().manual_seed(1)
    noise = torch.randn(swarm.layout.numel, generator=generator) * trained["h0"].std()
    deltas = {**trained, "noise": swarm.sent(noise)}
    seen = heard(swarm.judge(), swarm.case(deltas), deltas).observations()
    for hotkey in trained:
        assert seen[hotkey].loss is not None and seen[hotkey].loss.evident(2.0)
        assert seen[hotkey].participation == 1.0 and seen[hotkey].digest_ok
    assert seen["noise"].loss is not None
    assert seen["noise"].loss.held_out < 0.1 * min(seen[h].loss.held_out for h in trained)


def test_what_is_not_shown_is_worthless_unless_nobody_shows_anything(swarm: Swarm, trained: Deltas):
    case = swarm.case(trained)
    seen = heard(swarm.judge(), case, {**trained, "h1": None}).observations()
    assert seen["h1"].loss is WORTHLESS and seen["h0"].loss is not WORTHLESS
    seen = heard(swarm.judge(), case, dict.fromkeys(trained)).observations()
    assert all(observation.loss is None for observation in seen.values())


def test_a_hotkey_without_a_uid_is_not_asked_for_its_contribution(swarm: Swarm, trained: Deltas):
    case = replace(swarm.case(trained), uids={"h0": 0, "h2": 2})
    judgement = swarm.judge().begin(case)
    assert [c.hotkey for c in judgement.wanted] == ["h0", "h2"]


def test_a_reducer_that_signed_for_something_else_gets_nothing(swarm: Swarm, trained: Deltas):
    case = swarm.case(trained)
    words = case.update.words[0]
    ((reducer, word),) = words.items()
    words[reducer] = replace(word, root=b"?" * 32)
    judgement = heard(swarm.judge(), case, trained)
    assert judgement.faulty() == {reducer}
    seen = judgement.observations()[reducer]
    assert (seen.loss, seen.participation) == (WORTHLESS, 0.0)


def test_a_contribution_is_opened_only_with_the_norm_that_was_declared(swarm: Swarm, trained: Deltas):
    commitment = swarm.case(trained).update.roster.commitments[0]
    leaves = encode_tree(swarm.scheme.codec, swarm.layout, trained["h0"])
    assert torch.equal(opened(swarm.scheme, commitment, leaves), trained["h0"])
    with pytest.raises(BadRecord, match="norm"):
        opened(swarm.scheme, replace(commitment, norm=commitment.norm * 1.1), leaves)
    with pytest.raises(CodecError):
        opened(swarm.scheme, commitment, [b"", *leaves[1:]])


def test_leaves_that_are_not_what_was_declared_are_worthless_and_say_why(swarm: Swarm, trained: Deltas):
    case = swarm.case(trained)
    judgement = swarm.judge().begin(case)
    leaves = {h: encode_tree(swarm.scheme.codec, swarm.layout, delta) for h, delta in trained.items()}
    good, broken, gone = judgement.wanted
    assert judgement.hear_leaves(good, leaves[good.hotkey]) is None
    assert isinstance(judgement.hear_leaves(broken, [b"", *leaves[broken.hotkey][1:]]), CodecError)
    assert judgement.hear_leaves(gone, None) is None
    seen = judgement.observations()
    assert seen["h0"].loss is not WORTHLESS
    assert seen["h1"].loss is WORTHLESS and seen["h2"].loss is WORTHLESS


def test_copies_of_this_round_and_news_of_the_last_are_told_from_honest_work(swarm: Swarm, trained: Deltas):
    judge = swarm.judge()
    case = swarm.case(trained)
    first = heard(judge, case, trained).observations()
    assert not any(o.twins or o.stale for o in first.values())
    swarm.apply(case)
    now = {hotkey: swarm.train(uid, swarm.run.train.inner_steps) for uid, hotkey in enumerate(trained)}
    noise = torch.randn(swarm.layout.numel, generator=torch.Generator().manual_seed(1)) * now["h0"].std()
    copies = {
        "scaled": swarm.sent(-7 * now["h0"]),
        "noised": swarm.sent(now["h0"] + 0.2 * noise),
        "delayed": trained["h1"],
        "mixed": swarm.sent(trained["h1"] - 3 * trained["h2"]),
    }
    everybody = now | copies
    seen = heard(judge, swarm.case(everybody), everybody).observations()
    assert {h for h, o in seen.items() if o.twins} == {"h0", "scaled", "noised"}
    assert seen["h0"].twins == {"scaled", "noised"}
    assert {h for h, o in seen.items() if o.stale} == {"delayed", "mixed"}


def test_only_open_places_are_measured_on_the_rest_of_the_samples(swarm: Swarm, trained: Deltas):
    clear = {"h0": trained["h0"], "slow": swarm.train(4, 3), "zeros": torch.zeros(swarm.layout.numel)}
    judgement = heard(swarm.judge(), swarm.case(clear, steps={"slow": 3}), clear)
    assert judgement.undecided() == []
    noise = torch.randn(10, swarm.layout.numel, generator=torch.Generator().manual_seed(1)) * trained["h0"].std()
    near = {f"near{n}": swarm.sent(trained["h0"] + 0.05 * noise[n]) for n in range(10)}
    close = clear | near
    judgement = heard(swarm.judge(), swarm.case(close, steps={"slow": 3}), close)
    again = judgement.undecided()
    assert 2 <= len(again) <= len(close) // 2 and {c.hotkey for c in again} <= {"h0", *near}
    before = {c.hotkey: judgement._held_out[c.hotkey] for c in again}
    for commitment in again:
        judgement.hear_again(commitment, close[commitment.hotkey])
    for hotkey, first in before.items():
        assert len(judgement._held_out[hotkey]) == swarm.run.scoring.samples_held_out == 2 * len(first)
    assert all(len(judgement._held_out[h]) == swarm.run.scoring.samples_held_out // 2 for h in ("slow", "zeros"))


def test_a_commitment_that_the_leader_left_out_is_judged_by_its_loss(swarm: Swarm, trained: Deltas):
    case = swarm.case(trained)
    *listed, left_out = case.update.roster.commitments
    shorter = swarm.case({c.hotkey: trained[c.hotkey] for c in listed})
    case = replace(shorter, omitted=(left_out,), uids=case.uids)
    seen = heard(swarm.judge(), case, trained).observations()
    assert seen["h2"].loss is not None and seen["h2"].loss.evident(2.0)
    assert seen["h2"].participation is None


def test_the_state_and_the_contributions_are_left_as_they_were(swarm: Swarm, trained: Deltas):
    case = swarm.case(trained)
    theta, kept = case.theta.clone(), {h: delta.clone() for h, delta in trained.items()}
    heard(swarm.judge(), case, trained).observations()
    assert torch.equal(case.theta, theta)
    assert all(torch.equal(kept[h], trained[h]) for h in trained)

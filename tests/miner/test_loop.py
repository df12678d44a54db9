"""A miner's contribution: what is encoded, what is kept."""

from dataclasses import replace
from types import SimpleNamespace

import torch

from subnet.config import CodecConfig, load_run
from subnet.diloco.feedback import ErrorFeedback
from subnet.diloco.inner import InnerResult
from subnet.diloco.layout import Layout
from subnet.diloco.scheme import Scheme
from subnet.exchange.butterfly import PartResult
from subnet.exchange.claims import Agreement
from subnet.exchange.commitment import Commitment, norm_limit
from subnet.exchange.roster import Roster
from subnet.exchange.round import Update
from subnet.miner.loop import Miner, _told
from subnet.model.presets import parameter_shapes

RUN = load_run("demo")
LAYOUT = Layout.of(parameter_shapes(RUN.model).items(), RUN.codec.leaf_size)


def miner_with(gradient: torch.Tensor, codec: CodecConfig = RUN.codec) -> Miner:
    """A miner whose inner steps gave `gradient`, without a swarm or a model."""
    miner = object.__new__(Miner)
    miner.neuron = SimpleNamespace(  # type: ignore[assignment]
        run=RUN,
        layout=LAYOUT,
        signer=SimpleNamespace(ss58="5me"),
        state=SimpleNamespace(theta=gradient),
        exchange=SimpleNamespace(scheme=Scheme.of(replace(RUN, codec=codec), LAYOUT)),
    )
    miner.trainer = SimpleNamespace(theta=lambda: torch.zeros(LAYOUT.numel))  # type: ignore[assignment]
    miner.training = SimpleNamespace(recorded=None)  # type: ignore[assignment]
    miner.feedback = ErrorFeedback(LAYOUT.numel)
    miner._sent = None
    return miner


def gradient(scale: float) -> torch.Tensor:
    return torch.randn(LAYOUT.numel, generator=torch.Generator().manual_seed(1)) * scale


def averaged_alone() -> Update:
    """A round in which this miner's whole contribution is the mean."""
    commitment = Commitment("5me", b"c" * 32, 1.0, 100, 2, b"s" * 32)
    roster = Roster(3, "5me", b"r" * 32, b"s" * 32, (commitment,), 1)
    return Update(roster, torch.zeros(0), results={0: PartResult(0, "5me", b"p" * 32, roster.root, frozenset({"5me"}))})


def test_training_is_told_with_its_loss_and_rate():
    said = _told(InnerResult(steps=15, tokens=15_360, losses=[3.0, 2.34567]), 2.0)
    assert said == "loss 2.346 after 15 inner steps, 7,680 tokens/s"
    assert _told(InnerResult(steps=0, tokens=0, losses=[]), 0.0) == "not a single inner step done"


def test_more_than_a_round_can_give_is_sent_over_the_following_rounds():
    miner = miner_with(gradient(1.0))
    contribution = miner.contribute(InnerResult(steps=1, tokens=8, losses=[1.0]))
    assert contribution is not None
    assert 0.85 * norm_limit(RUN) < contribution.norm <= norm_limit(RUN)
    miner.settle(averaged_alone())
    sent = gradient(1.0) - miner.feedback.residual
    assert torch.cosine_similarity(sent, gradient(1.0), dim=0) > 0.999


def test_what_inner_steps_give_is_sent_as_it_is():
    miner = miner_with(gradient(RUN.train.lr))
    contribution = miner.contribute(InnerResult(steps=1, tokens=8, losses=[1.0]))
    assert contribution is not None
    miner.settle(averaged_alone())
    assert miner.feedback.residual.abs().max() < RUN.train.lr * 6 / 254


def test_what_a_sparse_mean_left_out_is_still_owed():
    miner = miner_with(gradient(RUN.train.lr), replace(RUN.codec, name="sparse"))
    contribution = miner.contribute(InnerResult(steps=1, tokens=8, losses=[1.0]))
    assert contribution is not None and miner._sent is not None
    sent = miner._sent.clone()
    update = averaged_alone()
    update.delta = sent.clone()
    (kept,) = sent.nonzero()[::2].unbind(1)
    (left_out,) = sent.nonzero()[1::2].unbind(1)
    update.delta[left_out] = 0.0
    miner.settle(update)
    owed = miner.feedback.residual
    assert torch.equal(owed[left_out], gradient(RUN.train.lr)[left_out])
    assert torch.equal(owed[kept], (gradient(RUN.train.lr) - sent)[kept])


def test_a_miner_that_was_outvoted_strikes_off_only_what_is_in_the_state_it_goes_on_from():
    miner, update = miner_with(gradient(RUN.train.lr)), averaged_alone()
    before = SimpleNamespace(step=4, momentum=torch.zeros(LAYOUT.numel))
    miner.neuron.state = SimpleNamespace(step=4, momentum=before.momentum)  # type: ignore[misc]
    back = Agreement(None, agreed=False, repaired_leaves=3)
    assert miner._as_it_is(update, before, back) is None  # the others took no step
    miner.neuron.state = SimpleNamespace(step=5, momentum=gradient(1.0))  # type: ignore[misc]
    assert miner._as_it_is(update, before, Agreement(None, agreed=False)) is None  # its own step: nothing was fetched
    found = miner._as_it_is(update, before, back)
    assert found is not None and found.missing == [] and torch.equal(found.delta, gradient(1.0))
    assert miner._as_it_is(update, before, Agreement(None, agreed=True)) is update

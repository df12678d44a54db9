"""The inner loop on a tiny Llama: it learns, obeys its schedule, stops when told, and survives bad steps."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from subnet.components import ModelConfig, TrainConfig
from subnet.diloco.inner import InnerResult, InnerTrainer, TrainingDiverged, evaluate, learning_rate
from subnet.diloco.layout import Layout
from subnet.errors import UserError
from subnet.model.build import build_model, init_theta
from subnet.model.presets import parameter_shapes

MODEL = ModelConfig(
    preset="custom",
    vocab_size=32,
    hidden_size=16,
    intermediate_size=32,
    num_layers=2,
    num_heads=2,
    num_kv_heads=1,
    seq_len=16,
    tie_embeddings=True,
)
TRAIN = TrainConfig(inner_steps=10, batch_size=4, micro_batch=4, lr=1e-2, warmup_steps=0, decay_steps=1000)
LAYOUT = Layout.of(parameter_shapes(MODEL).items(), 64)
THETA = LAYOUT.flatten(init_theta(MODEL, seed=1))


def trainer_with(**changes: Any) -> InnerTrainer:
    trainer = InnerTrainer(build_model(MODEL), replace(TRAIN, **changes), LAYOUT)
    trainer.load(THETA)
    return trainer


def batches(seed: int = 0, batch: int = 4) -> Iterator[torch.Tensor]:
    """Counting upwards from a random token: easy to learn."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        first = torch.randint(0, 32, (batch, 1), generator=generator)
        yield (first + torch.arange(16)) % 32


def never() -> bool:
    return False


def poison(trainer: InnerTrainer, calls: set[int]) -> None:
    """Make the logits of these forward passes NaN."""
    count = iter(range(10**6))

    def hook(_module: torch.nn.Module, _inputs: Any, output: Any) -> Any:
        if next(count) in calls:
            output.logits = output.logits * math.nan
        return output

    trainer.model.register_forward_hook(hook)


def test_theta_survives_the_model_bit_for_bit() -> None:
    trainer = trainer_with()
    assert torch.equal(trainer.theta(), THETA)
    assert trainer.theta().data_ptr() != trainer.theta().data_ptr()


def test_it_learns() -> None:
    trainer = trainer_with()
    held_out = next(batches(seed=99, batch=8))
    before = evaluate(trainer.model, held_out)
    result = trainer.train(batches(), 60, 0, never)
    assert result.steps == 60 and len(result.losses) == 60 and result.skipped == 0
    assert result.tokens == 60 * 4 * 16
    assert result.losses[0] == pytest.approx(math.log(32), abs=0.3)
    assert evaluate(trainer.model, held_out).mean() < 0.5 * before.mean()
    assert not torch.equal(trainer.theta(), THETA)


def test_it_stops_between_steps_when_told() -> None:
    answers = iter([False, False, False, True])
    assert trainer_with().train(batches(), 100, 0, lambda: next(answers)).steps == 3
    assert trainer_with().train(batches(), 100, 0, lambda: True) == InnerResult()
    assert trainer_with().train(batches(), 4, 0, never).steps == 4
    assert trainer_with().train([next(batches())] * 2, 100, 0, never).steps == 2


def test_micro_batches_give_the_same_step() -> None:
    whole, cut, uneven = trainer_with(), trainer_with(micro_batch=1), trainer_with(micro_batch=3, batch_size=3)
    results = [trainer.train(batches(), 5, 0, never) for trainer in (whole, cut, uneven)]
    for trainer, result in zip((cut, uneven), results[1:], strict=True):
        assert result.losses == pytest.approx(results[0].losses, abs=1e-4)
        assert torch.allclose(trainer.theta(), whole.theta(), atol=1e-3)


def test_schedule() -> None:
    cfg = replace(TRAIN, lr=1.0, warmup_steps=4, decay_steps=104, min_lr_ratio=0.1)
    assert [learning_rate(cfg, s) for s in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert learning_rate(cfg, 54) == pytest.approx(0.55)
    assert learning_rate(cfg, 103) > learning_rate(cfg, 104) == learning_rate(cfg, 10**9) == pytest.approx(0.1)


def test_the_schedule_follows_the_global_step() -> None:
    """At the floor of zero nothing moves; at the same step of another round everything moves alike."""
    still = trainer_with(min_lr_ratio=0.0, decay_steps=10)
    still.train(batches(), 3, 10, never)
    assert torch.equal(still.theta(), THETA)
    early, late = trainer_with(), trainer_with()
    early.train(batches(), 3, 0, never)
    late.train(batches(), 3, 900, never)
    assert float((late.theta() - THETA).norm()) < 0.3 * float((early.theta() - THETA).norm())


def test_only_matrices_decay() -> None:
    thetas = []
    for decay in (0.0, 0.5):
        trainer = trainer_with(weight_decay=decay)
        trainer.train(batches(), 1, 0, never)
        thetas.append(LAYOUT.unflatten(trainer.theta()))
    for name, shape in LAYOUT.shapes.items():
        assert torch.equal(thetas[0][name], thetas[1][name]) == (len(shape) < 2), name
    expected = thetas[0]["model.embed_tokens.weight"]
    start = LAYOUT.unflatten(THETA)["model.embed_tokens.weight"]
    assert torch.allclose(thetas[1]["model.embed_tokens.weight"], expected - 1e-2 * 0.5 * start, atol=1e-6)


def test_gradients_are_clipped() -> None:
    norms = []
    trainer = trainer_with(grad_clip=0.01)
    parameters = list(trainer.model.parameters())

    def record(*_: Any) -> None:
        norms.append(float(torch.stack([p.grad.norm() for p in parameters if p.grad is not None]).norm()))

    trainer._adamw.register_step_pre_hook(record)
    trainer.train(batches(), 3, 0, never)
    assert norms == pytest.approx([0.01] * 3, rel=1e-3)


def test_a_step_that_is_not_finite_is_left_out() -> None:
    trainer, clean = trainer_with(), trainer_with()
    poison(trainer, {1, 3})
    result = trainer.train([next(batches())] * 6, 6, 0, never)
    assert (result.steps, result.skipped, result.tokens) == (4, 2, 4 * 4 * 16)
    assert all(map(math.isfinite, result.losses)) and len(result.losses) == 4
    for step in (0, 2, 4, 5):
        clean.train([next(batches())], 1, step, never)
    assert torch.equal(trainer.theta(), clean.theta())


def test_five_in_a_row_are_a_clear_error() -> None:
    trainer = trainer_with()
    poison(trainer, {*range(4), *range(5, 10)})
    with pytest.raises(TrainingDiverged, match=r"5 inner steps in a row, up to global step 79; .*train\.lr") as error:
        trainer.train(batches(), 100, 70, never)
    assert isinstance(error.value, UserError)
    assert bool(torch.isfinite(trainer.theta()).all())


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_training_goes_on_after_a_restart_as_if_nothing_happened(optimizer: str) -> None:
    without, first, second = (trainer_with(optimizer=optimizer) for _ in range(3))
    data = [next(batches(seed)) for seed in range(6)]
    without.train(data, 6, 0, never)
    first.train(data[:3], 3, 0, never)
    saved, theta = first.state_dict(), first.theta()
    assert set(saved) == {"exp_avg", "exp_avg_sq", "step"} and saved["exp_avg"].shape == (LAYOUT.numel,)
    first.train(data[3:], 3, 3, never)  # what was saved does not follow
    second.load_state_dict(saved)
    second.load(theta)
    second.train(data[3:], 3, 3, never)
    assert torch.equal(second.theta(), without.theta())
    assert torch.equal(first.theta(), without.theta())


def test_muon_moves_hidden_matrices_and_nothing_else() -> None:
    """One step is as large as AdamW's (0.2 lr sqrt(elements) by its scaling), and decay is decoupled."""
    adamw, muon = trainer_with(), trainer_with(optimizer="muon")
    for trainer in (adamw, muon):
        trainer.train(batches(), 1, 0, never)
    start, a, b = (LAYOUT.unflatten(x) for x in (THETA, adamw.theta(), muon.theta()))
    for name, shape in LAYOUT.shapes.items():
        hidden = len(shape) == 2 and "embed_tokens" not in name
        assert torch.equal(a[name], b[name]) != hidden, name
        if hidden:
            moved = b[name] - start[name] * (1 - TRAIN.lr * TRAIN.weight_decay)
            rms = float(moved.square().mean().sqrt())
            assert 0.1 * TRAIN.lr < rms < 0.3 * TRAIN.lr, name


def test_muon_learns() -> None:
    trainer = trainer_with(optimizer="muon")
    losses = trainer.train(batches(), 60, 0, never).losses
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_an_empty_or_foreign_optimizer_state(optimizer: str) -> None:
    trainer, fresh = trainer_with(optimizer=optimizer), trainer_with(optimizer=optimizer)
    assert trainer.state_dict() == {}
    trainer.train(batches(), 2, 0, never)
    good = trainer.state_dict()
    for wrong in ({"exp_avg": good["exp_avg"]}, good | {"exp_avg": torch.zeros(3)}, good | {"more": torch.zeros(3)}):
        with pytest.raises(ValueError):
            trainer.load_state_dict(wrong)
    assert all(torch.equal(a, b) for a, b in zip(good.values(), trainer.state_dict().values(), strict=True))
    trainer.load_state_dict({})
    trainer.load(THETA)
    assert trainer.state_dict() == {}
    trainer.train(batches(), 1, 0, never)
    fresh.train(batches(), 1, 0, never)
    assert torch.equal(trainer.theta(), fresh.theta())


def test_the_layout_must_be_the_models() -> None:
    with pytest.raises(ValueError, match="not those of the layout"):
        InnerTrainer(build_model(MODEL), TRAIN, Layout.of([("w", (8, 8))], 64))


def test_evaluate_is_the_mean_of_each_sample() -> None:
    trainer = trainer_with()
    tokens = torch.randint(0, 32, (5, 16), generator=torch.Generator().manual_seed(3))
    losses = evaluate(trainer.model, tokens)
    assert losses.dtype == np.float64 and losses.shape == (5,) and trainer.model.training
    for sample, loss in zip(tokens, losses, strict=True):
        with torch.no_grad():
            expected = float(trainer.model(input_ids=sample[None], labels=sample[None]).loss)  # the library's own
        assert loss == pytest.approx(expected, abs=1e-5)
    trainer.load(THETA * math.inf)
    assert not np.isfinite(evaluate(trainer.model, tokens)).any()

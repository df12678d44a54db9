"""What the demo says at its end."""

from dataclasses import replace
from pathlib import Path

import pytest

from subnet.demo.report import PROMPTS, Summary, _failures, figure, text

SUMMARY = Summary(
    rounds=8,
    outer_steps=8,
    loss_before=5.0,
    loss_after=2.5,
    digest="ab" * 32,
    digests_differing=[],
    without_a_round=[],
    miner_shares={"miner-1": 0.99, "free-rider": 0.01},
    free_rider_share=0.01,
    bytes_up_per_round={"miner-1": 5e6},
    fp32_every_step_bytes={"miner-1": 1e8},
    samples=["def f():\n    return 1"],
    failures=[],
)


def said(**changes: object) -> str:
    summary = replace(SUMMARY, **changes)  # type: ignore[arg-type]
    summary.failures.extend(_failures(summary))
    return text(summary, Path("out"), 200.0)


def test_success_is_said_in_a_word_at_the_end_and_the_samples_say_what_they_are() -> None:
    words = said(failures=[])
    assert words.splitlines()[-1].startswith("PASSED: the loss fell by 50%") and "FAILED" not in words
    assert "(50% lower)" in words and "held by all" in words and "20x less" in words
    assert words.index("what the model writes after 8 outer steps") < words.index("  | def f():")
    assert all(repr(prompt) in words for prompt in PROMPTS)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"loss_after": 4.0}, "held-out loss fell by 20.0%, less than 25%"),
        ({"digests_differing": ["miner-1"]}, "state digests differ: miner-1"),
        ({"without_a_round": ["late-miner"]}, "finished no round: late-miner"),
        ({"digest": ""}, "no round was finished by every neuron"),
        ({"miner_shares": {}}, "no miner earned anything"),
        ({"free_rider_share": 0.2}, "the free-rider took 20.0% of the miners' emission"),
    ],
)
def test_failure_is_said_with_its_reason(changes: dict[str, object], reason: str) -> None:
    words = said(failures=[], **changes)
    assert words.splitlines()[-1] == f"FAILED: {reason}" and "PASSED" not in words


@pytest.mark.parametrize("changes", [{"digest": ""}, {"digests_differing": ["m"]}, {"without_a_round": ["m"]}])
def test_no_state_is_held_by_all_that_is_not(changes: dict[str, object]) -> None:
    assert "held by all" not in said(failures=[], **changes)


def test_the_curve_ends_with_the_final_model_at_whole_rounds() -> None:
    axes = figure([(7, 5.0), (8, 3.0)], (10, 2.5)).axes[0]
    measured, final = axes.lines
    assert list(measured.get_xdata()) == [0, 1] and list(measured.get_ydata()) == [5.0, 3.0]
    assert list(final.get_xdata()) == [3] and list(final.get_ydata()) == [2.5]
    assert all(float(tick).is_integer() for tick in axes.get_xticks())
    assert len(figure([], None).axes[0].lines) == 0


def test_what_the_model_writes_cannot_command_the_terminal() -> None:
    assert "  | a\N{MIDDLE DOT}[2Jb" in said(failures=[], samples=["a\x1b[2Jb"])

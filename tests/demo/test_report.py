"""What the demo says at its end."""

from dataclasses import replace
from pathlib import Path

from subnet.demo.report import PROMPTS, Summary, plot, text

SUMMARY = Summary(
    rounds=8,
    outer_steps=8,
    loss_before=5.0,
    loss_after=2.5,
    digest="ab" * 32,
    digests_differing=[],
    miner_shares={"miner-1": 0.99, "free-rider": 0.01},
    free_rider_share=0.01,
    bytes_up_per_round={"miner-1": 5e6},
    fp32_every_step_bytes={"miner-1": 1e8},
    samples=["def f():\n    return 1"],
    failures=[],
)


def test_success_is_said_in_a_word_and_the_samples_say_what_they_are():
    said = text(SUMMARY, Path("out"))
    assert "PASSED" in said and "FAILED" not in said
    assert "(50% lower)" in said and "held by all" in said and "20x less" in said
    assert said.index("what the model writes") < said.index("  | def f():")
    assert all(prompt in said for prompt in PROMPTS)


def test_every_failure_is_a_line_of_its_own():
    said = text(replace(SUMMARY, digests_differing=["miner-1"], failures=["this", "that"]), Path("out"))
    assert "PASSED" not in said and "held by all" not in said and "but not by miner-1" in said
    assert said.endswith("FAILED: this\nFAILED: that")


def test_without_a_finished_round_there_is_no_state_to_be_held():
    assert "none: no round was finished" in text(replace(SUMMARY, digest=""), Path("out"))


def test_the_curve_is_drawn_even_when_there_is_none(tmp_path):
    for curve in ([], [(7, 5.0), (8, 3.0)]):
        plot(curve, 2.5, tmp_path / "loss.png")
        assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")

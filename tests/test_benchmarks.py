"""What the benchmarks rest on, without measuring anything: their imports, the run they write, the line they print."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from subnet.config import load_run, run_names
from subnet.errors import UserError

FOLDER = Path(__file__).resolve().parent.parent / "benchmarks"
NAMES = sorted(file.stem for file in FOLDER.glob("*.py") if file.stem != "bench")


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    for name in ("PYTHONPATH", "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, os.environ.get(name, ""))  # importing it sets both
    monkeypatch.setattr(sys, "path", [str(FOLDER), *sys.path])
    return importlib.import_module("bench")


def load(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A benchmark, by its file: the tests' own packages have some of the same names."""
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)  # where dataclasses look up the types of their fields
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", NAMES)
def test_every_benchmark_imports_and_says_how_it_is_run(
    name: str, bench: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = load(name, monkeypatch)
    assert f"python benchmarks/{name}.py" in (module.__doc__ or "")
    assert callable(module.measure)


@pytest.mark.parametrize("name", run_names())
def test_a_written_run_is_the_same_run(name: str, bench: ModuleType, tmp_path: Path) -> None:
    run = load_run(name)
    assert load_run(bench.write_run(run, tmp_path / "run.toml")) == run


def test_budgets_hold_at_their_limit_and_not_beyond(bench: ModuleType) -> None:
    assert bench.budget(20.0, 20.0)["ok"] and not bench.budget(20.1, 20.0)["ok"]
    assert bench.budget(0.95, 0.95, at_least=True)["ok"] and not bench.budget(0.94, 0.95, at_least=True)["ok"]


def test_one_line_of_json_even_when_it_cannot_run(bench: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    async def measure() -> tuple[bool, dict[str, object]]:
        raise UserError("no cores here")

    assert bench.main(measure) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["ok"] is False and json.loads(line)["error"] == "no cores here"


def test_grandchildren_are_descendants(bench: ModuleType) -> None:
    script = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1, flush=True); input()'])"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdout.readline() == b"1\n"
        below = bench.descendants(child.pid)
        assert len(below) == 1 and {child.pid, *below} <= set(bench.descendants(os.getpid()))
        child.communicate(b"\n")


@pytest.fixture
def exchange(bench: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load("exchange", monkeypatch)


def test_peers_of_an_exchange_average_different_vectors_whose_exact_mean_is_known(exchange: ModuleType) -> None:
    vectors = importlib.import_module("exchange_study.vectors")
    size = 3 * vectors.ROW - 8
    first, second = vectors.vector(size, 0, 1), vectors.vector(size, 1, 1)
    assert (first == vectors.vector(size, 0, 1)).all() and not (first == second).any()
    exact = vectors.mean(size, 2, 1)
    assert vectors.error((first + second) / 2, exact) < 1e-7
    assert vectors.error(2 * exact.float(), exact) == pytest.approx(1.0, rel=1e-6)


def test_a_link_passes_frames_at_its_rate_and_drops_what_its_buffer_does_not_hold(exchange: ModuleType) -> None:
    network = importlib.import_module("exchange_study.network")
    lane = network.Lane(8000.0)  # bit/s: a millisecond a byte
    assert lane.pass_at(5.0, 60) == pytest.approx(5.06)
    assert lane.pass_at(5.0, 60) == pytest.approx(5.12)
    assert lane.pass_at(5.0, 60) is None  # 0.12 s wait already
    assert lane.pass_at(6.0, 60) == pytest.approx(6.06)


def test_a_frame_not_yet_cut_counts_as_the_packets_it_becomes(exchange: ModuleType) -> None:
    network = importlib.import_module("exchange_study.network")
    plain, cut = bytes(10), bytes(4) + (1000).to_bytes(2, "little") + bytes(4)
    assert network.wire_bytes(plain + bytes(66 + 900)) == 66 + 900
    assert network.wire_bytes(cut + bytes(66 + 2500)) == 3 * 66 + 2500


def test_an_exchange_is_held_against_the_cell_with_its_size_and_peers_only(exchange: ModuleType) -> None:
    def row(contender: str, peers: int, seconds: float) -> dict[str, object]:
        return {"contender": contender, "parameters": 10_000_000, "peers": peers, "seconds": seconds,
                "cpu_seconds": 1.0, "mb_up": 10.0 * peers, "error": 0.01}  # fmt: skip

    rows = [row("ours:int8", 4, 1.0), row("hivemind:uniform8", 4, 2.0), row("hivemind:uniform8", 8, 9.0)]
    budgets = exchange.against_hivemind(rows)
    assert budgets["times_faster_ours:int8_hivemind:uniform8_10M_4"]["measured"] == 2.0
    assert not budgets["times_faster_ours:int8_hivemind:uniform8_10M_4"]["ok"] and len(budgets) == 4
    (grown,) = exchange.growth([row("ours:int8", 4, 1.0), row("ours:int8", 8, 1.0)]).values()
    assert grown["measured"] == pytest.approx(2 * 1.5 / 1.75, rel=1e-3) and not grown["ok"]
    unequal = [row("ours:int8", 4, 2.0), row("equal:int8", 4, 3.0), row("equal:int8", 8, 9.0)]
    (faster,) = exchange.against_equal(unequal).values()
    assert faster["measured"] == 1.5 and faster["ok"]


@pytest.mark.slow
def test_two_peers_of_each_kind_really_average(exchange: ModuleType) -> None:
    contenders = ["ours:int8", "hivemind:uniform8", "gloo:fp32"]
    arguments = ["--parameters", "0.5", "--peers", "2", "--rounds", "1", "--contenders", *contenders]
    command = [sys.executable, str(FOLDER / "exchange.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    figures = json.loads(done.stdout)
    if figures.get("error", "").startswith("this needs"):
        pytest.skip(figures["error"])
    ours, theirs, exact = figures["rows"]
    # One copy of the vector goes out, half of it twice: about a byte, or four, for a parameter.
    assert 0.5 < ours["mb_up"] < 0.6 and 0.5 < theirs["mb_up"] < 0.6 and 2.0 < exact["mb_up"] < 2.1
    assert exact["error"] < 1e-6 < ours["error"] < 0.02


def chaos_of_four(bench: ModuleType) -> tuple[ModuleType, ModuleType, Any]:
    """The plan's module, the verdict's, and a plan of blows to four peers in rounds 5 to 24 of the demo's length."""
    plan, verdict = (importlib.import_module(f"chaos_study.{name}") for name in ("plan", "verdict"))
    return plan, verdict, plan.Plan(7, 4, load_run("demo").rounds, 5, 25)


def test_chaos_is_the_same_in_every_process_and_ends_in_time(bench: ModuleType) -> None:
    plan, _, chaos = chaos_of_four(bench)
    plan._drawn.cache_clear()
    blows = [chaos.of_round(index) for index in range(30)]
    plan._drawn.cache_clear()
    assert blows == [chaos.of_round(index) for index in range(30)]
    assert not any(blows[:5]) and not any(blows[25:]) and len({b.kind for each in blows for b in each}) > 5
    length = chaos.rounds.blocks
    for index, each in enumerate(blows):
        assert all(index * length <= b.start < (index + 1) * length and 0 < b.blocks <= length / 2 for b in each)


def chaos_events(bench: ModuleType, change: Callable[[dict[str, Any]], None]) -> list[str]:
    """What a chaos run is blamed for in which two of four peers tell of one calm round, one event of it changed."""
    _, verdict, chaos = chaos_of_four(bench)
    hotkeys = [f"hotkey {i}" for i in range(4)]
    listed = {hotkeys[peer]: f"root {peer}" for peer in range(2)}
    lives = []
    for peer in range(4):
        part = {"included": sorted(listed), "missing": False, "sent": 1.0, "taken": float(peer < 2)}
        parts = [part.copy() for _ in range(2)]
        settled = {
            "event": "settled", "round": 1, "step": 1, "before": "a", "digest": "b", "agreed": True,
            "root": f"root {peer}", "imbalance": 0.0, "view": {"roster": "r", "listed": listed, "parts": parts},
        }  # fmt: skip
        ended = {"event": "round", "round": 1, "step": 1, "digest": "b", "agreed": True, "time": 80.0}
        begun = {"event": "begun", "resumed": -1, "time": 0.0}
        lives.append(verdict.Life(peer, 0, [begun, settled, ended]))
    change({"lives": lives, **{e["event"]: e for e in lives[0].events}})
    judge = verdict.Verdict(chaos, lives, hotkeys, 0.0, 1.0)
    judge.figures()
    return [failure.partition(": ")[2] for failure in judge.failures]


def test_chaos_blames_nobody_for_nothing(bench: ModuleType) -> None:
    assert chaos_events(bench, lambda _: None) == []


def test_chaos_finds_work_that_left_the_books_and_is_in_nobodys_state(bench: ModuleType) -> None:
    def leave_out(events: dict[str, Any]) -> None:
        for life in events["lives"]:
            life.events[1]["view"]["parts"][1]["included"] = ["hotkey 1"]

    (failure,) = chaos_events(bench, leave_out)
    assert failure.startswith("peer 0, which agreed, lost parts [1]")

    def replace_contribution(events: dict[str, Any]) -> None:
        events["settled"]["root"] = "a later root"

    (failure,) = chaos_events(bench, replace_contribution)
    assert failure.startswith("peer 0, which agreed, lost parts [0, 1]")


def test_chaos_finds_states_that_stay_different_and_waits_without_end(bench: ModuleType) -> None:
    def differ(events: dict[str, Any]) -> None:
        events["settled"] |= {"digest": "c"}
        events["round"] |= {"digest": "c", "time": 300.0}

    failures = chaos_events(bench, differ)
    assert any("never held the others' state again" in f for f in failures)
    assert any(f.startswith("peer 0 ended its apply phase 1") for f in failures)


def test_chaos_finds_a_finished_round_that_a_death_took_away(bench: ModuleType) -> None:
    def die(events: dict[str, Any]) -> None:
        life = events["lives"][0]
        life.died = 81.0
        life.events.append({"event": "checkpoint", "round": 1, "step": 1, "ok": True, "time": 80.5})
        events["lives"].append(type(life)(0, 1, [{"event": "begun", "resumed": 0, "time": 82.0}]))

    assert any("was killed after this round, and went on from round 0" in f for f in chaos_events(bench, die))


@pytest.mark.slow
def test_a_few_rounds_of_chaos_end_in_one_state_with_nothing_lost(tmp_path: Path) -> None:
    command = [sys.executable, str(FOLDER / "chaos.py"), "--rounds", "3", "--peers", "4", "--seed", "5"]
    command += ["--out", str(tmp_path / "c")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
    line = json.loads(ended.stdout)
    assert ended.returncode == 0 and line["ok"], ended.stderr[-3000:]
    assert line["agreement"]["outer_steps"] >= 6 and line["conservation"]["parts"] > 50 and not line["failures"]

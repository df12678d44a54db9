"""What the benchmarks rest on, without measuring anything: their imports, the run they write, the line they print."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

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


@pytest.mark.parametrize("name", NAMES)
def test_every_benchmark_imports_and_says_how_it_is_run(
    name: str, bench: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    # By file: the tests' own packages have some of the same names.
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)  # where dataclasses look up the types of their fields
    spec.loader.exec_module(module)
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

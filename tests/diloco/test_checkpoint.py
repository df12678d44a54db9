"""Checkpoints are whole or not there: killed processes, damaged files, full disks."""

import json
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from subnet.diloco import checkpoint
from subnet.diloco.checkpoint import load, save
from subnet.diloco.layout import Layout
from subnet.diloco.state import OuterState
from subnet.errors import UserError

LAYOUT = Layout.of([("w", (64, 500)), ("norm", (64,))], 4096)
INNER = {"exp_avg": torch.ones(LAYOUT.numel), "exp_avg_sq": torch.full((LAYOUT.numel,), 2.0), "step": torch.tensor(9.0)}
META = {"run_id": "ab" * 32, "round": 41, "loss": 0.1}
KILLED = 41
WATCHED = {"open", "os.rename", "os.mkdir", "os.listdir", "os.scandir", "shutil.rmtree"}
FILES = 3
DELETIONS = {"os.remove", "os.rmdir"}  # these name their file relative to an open folder


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five vectors do not fit one file."""
    monkeypatch.setattr(checkpoint, "FILE_BYTES", 5 * 4 * LAYOUT.numel // FILES + 1)


def state_at(step: int) -> OuterState:
    theta = torch.arange(LAYOUT.numel, dtype=torch.float32) + step
    return OuterState(theta, theta / 2, step, LAYOUT)


def save_at(folder: Path, step: int) -> Path:
    return save(folder, state_at(step), torch.full((LAYOUT.numel,), float(step)), INNER, META)


def step_of(folder: Path) -> int | None:
    """Outer step of what loads, having checked that all of it is what was saved at that step."""
    loaded = load(folder, LAYOUT)
    if loaded is None:
        return None
    step = loaded.state.step
    assert loaded.state.digest() == state_at(step).digest()
    assert loaded.feedback is not None and torch.equal(loaded.feedback, torch.full((LAYOUT.numel,), float(step)))
    assert loaded.inner.keys() == INNER.keys()
    assert all(torch.equal(loaded.inner[name], INNER[name]) for name in INNER)
    assert loaded.meta == META
    return step


def test_round_trip_and_the_newest_two_stay(tmp_path: Path) -> None:
    folder = tmp_path / "home" / "checkpoints"
    assert load(folder, LAYOUT) is None
    for step in (3, 4, 5, 2):  # a repair may take a node back to an earlier step; newest means saved last
        path = save_at(folder, step)
        assert step_of(folder) == step
    assert [p.name for p in sorted(folder.iterdir())] == ["00000003", "00000004"]
    assert path == folder / "00000004"
    files = sorted(path.glob("tensors-*.safetensors"))
    assert len(files) == FILES
    assert max(f.stat().st_size for f in files) < 2 * min(f.stat().st_size for f in files)


def test_as_many_stay_as_are_asked_for(tmp_path: Path) -> None:
    for kept, left in ((3, 1), (3, 2), (3, 3), (3, 3), (1, 1), (2, 2)):
        save(tmp_path, state_at(kept), None, {}, {}, kept=kept)
        assert len(list(tmp_path.iterdir())) == left


def test_tensors_that_change_meanwhile_are_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_at(tmp_path, 1)
    state, save_file = state_at(2), checkpoint.save_file

    def slow_save_file(tensors: dict, file: Path) -> None:
        save_file(tensors, file)
        state.momentum[0] += 1

    monkeypatch.setattr(checkpoint, "save_file", slow_save_file)
    with pytest.raises(RuntimeError, match="momentum was changed"):
        save(tmp_path, state, None, {}, {})
    monkeypatch.undo()
    assert [p.name for p in tmp_path.iterdir()] == ["00000001"]


def test_doubles_and_scalars_come_back_as_they_were(tmp_path: Path) -> None:
    inner = {
        "books": torch.linspace(0, 1, LAYOUT.numel, dtype=torch.float64),
        "count": torch.tensor(7),
        "few": torch.ones(3),
    }
    save(tmp_path, state_at(1), None, inner, {})
    loaded = load(tmp_path, LAYOUT)
    assert loaded is not None and loaded.inner.keys() == inner.keys()
    assert all(loaded.inner[n].dtype == t.dtype and torch.equal(loaded.inner[n], t) for n, t in inner.items())


def test_a_node_without_feedback_and_inner_optimizer(tmp_path: Path) -> None:
    save(tmp_path, state_at(1), None, {}, {})
    loaded = load(tmp_path, LAYOUT)
    assert loaded is not None and loaded.feedback is None and loaded.inner == {} and loaded.meta == {}


def test_loaded_tensors_do_not_depend_on_the_file(tmp_path: Path) -> None:
    save_at(tmp_path, 1)
    loaded = load(tmp_path, LAYOUT)
    assert loaded is not None
    loaded.state.theta.zero_()
    assert step_of(tmp_path) == 1


def run_killed(work: Callable[[], Any], folder: Path, at: int) -> int:
    """Run `work` in a child process that dies, without any clean-up, at the `at`-th file operation on `folder`.

    Returns the child's exit status: KILLED, or 0 when it came through with fewer operations.
    """
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    signal.alarm(30)
    left = iter(range(at))

    def hook(event: str, args: tuple) -> None:
        ours = event in DELETIONS or (event in WATCHED and any(str(folder) in str(a) for a in args))
        if ours and next(left, None) is None:
            os._exit(KILLED)

    fsync, save_file = os.fsync, checkpoint.save_file

    def counted_fsync(fd: int) -> None:
        hook("open", (folder,))
        fsync(fd)

    def torn_save_file(tensors: dict, file: Path) -> None:
        save_file(tensors, file)
        if next(left, None) is None:
            os.truncate(file, os.path.getsize(file) // 3)
            os._exit(KILLED)

    os.fsync, checkpoint.save_file = counted_fsync, torn_save_file
    sys.addaudithook(hook)
    try:
        work()
        os._exit(0)
    finally:
        os._exit(1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_killed_at_every_step_of_a_save(tmp_path: Path) -> None:
    """Whatever instruction a node dies at, the next start finds the old or the new checkpoint, whole."""
    outcomes = []
    for at in range(200):
        folder = tmp_path / str(at)
        for step in (1, 2):
            save_at(folder, step)
        status = run_killed(lambda folder=folder: save_at(folder, 3), folder, at)
        assert status in (0, KILLED)
        outcomes.append(step_of(folder))
        assert outcomes[-1] in (2, 3)
        assert save_at(folder, 4).parent == folder and step_of(folder) == 4
        assert len(list(folder.iterdir())) == 2, "what the dead process left is cleaned up"
        if status == 0:
            break
    assert len(outcomes) > 12 and outcomes == sorted(outcomes)
    assert outcomes[0] == 2 and outcomes[-1] == 3


def damage(kind: str, newest: Path) -> None:
    tensors, manifest = newest / "tensors-00001.safetensors", newest / "checkpoint.json"
    if kind == "truncated":
        os.truncate(tensors, tensors.stat().st_size - 1)
    elif kind == "empty":
        os.truncate(tensors, 0)
    elif kind == "flipped bit":
        data = bytearray(tensors.read_bytes())
        data[len(data) // 2] ^= 1
        tensors.write_bytes(data)
    elif kind == "no tensors":
        tensors.unlink()
    elif kind == "no manifest":
        manifest.unlink()
    elif kind == "torn manifest":
        os.truncate(manifest, 20)
    elif kind == "no utf-8":
        manifest.write_bytes(b"\xff\xfe\x00")
    elif kind == "a list":
        manifest.write_text("[1]")
    elif kind == "another step":
        manifest.write_text(manifest.read_text().replace('"step": 2', '"step": 3'))
    elif kind == "another meta":
        manifest.write_text(manifest.read_text().replace('"round": 41', '"round": 42'))
    elif kind == "another version":
        manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"format": 1}))


@pytest.mark.parametrize(
    "kind",
    [
        "truncated",
        "empty",
        "flipped bit",
        "no tensors",
        "no manifest",
        "torn manifest",
        "no utf-8",
        "a list",
        "another step",
        "another meta",
        "another version",
    ],
)
def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    save_at(tmp_path, 1)
    damage(kind, save_at(tmp_path, 2))
    with caplog.at_level(logging.WARNING):
        assert step_of(tmp_path) == 1
    assert "00000002 is damaged" in caplog.text
    damage("truncated", tmp_path / "00000001")
    assert load(tmp_path, LAYOUT) is None


@pytest.fixture
def small_disk() -> Iterator[None]:
    """The kernel refuses this process any file above 64 KiB."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_leaves_the_old_one(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    save_at(tmp_path, 1)
    request.getfixturevalue("small_disk")
    with pytest.raises(UserError, match=r"cannot save a checkpoint in .*: .*too large.*MiB free.*is intact") as error:
        save_at(tmp_path, 2)
    assert "\n" not in str(error.value)
    assert [p.name for p in tmp_path.iterdir()] == ["00000001"]
    assert step_of(tmp_path) == 1


def test_a_disk_that_fails_to_flush_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_at(tmp_path, 1)
    fsync = os.fsync
    for failing in range(FILES + 3):
        calls = iter(range(10))

        def broken(fd: int, failing: int = failing, calls: Iterator[int] = calls) -> None:
            if next(calls) == failing:
                raise OSError(28, "No space left on device")
            fsync(fd)

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", broken)
            with pytest.raises(UserError, match="No space left on device"):
                save_at(tmp_path, 2)
        assert step_of(tmp_path) in (1, 2)
        assert all(p.name.isdecimal() for p in tmp_path.iterdir())


def test_no_folder_can_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match="cannot save"):
        save_at(tmp_path / "file" / "checkpoints", 1)


def test_another_models_checkpoint_is_said_to_be_one(tmp_path: Path) -> None:
    save_at(tmp_path, 1)
    with pytest.raises(UserError, match="of another model"):
        load(tmp_path, Layout.of([("w", (8, 8))], 4))


def test_meta_that_is_not_json_or_too_long_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        save(tmp_path, state_at(1), None, {}, {"key": b"bytes"})
    with pytest.raises(ValueError, match="below"):
        save(tmp_path, state_at(1), None, {}, {"key": "x" * (1 << 20)})
    assert list(tmp_path.iterdir()) == []

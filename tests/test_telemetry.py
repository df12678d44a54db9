import json
import time

import pytest

from subnet.telemetry import METRICS_FILE, Progress, Telemetry, size


def events(home):
    return [json.loads(line) for line in (home / METRICS_FILE).read_text().splitlines()]


def test_every_event_is_a_whole_line_at_once(tmp_path):
    telemetry = Telemetry(tmp_path, "miner", "5F", "disabled", "demo", now=lambda: 12.3456)
    telemetry.event("phase", phase="train", round=3)
    assert events(tmp_path) == [
        {"time": 12.346, "event": "phase", "role": "miner", "hotkey": "5F", "phase": "train", "round": 3}
    ]
    telemetry.close()


def test_a_second_start_appends(tmp_path):
    for _ in range(2):
        telemetry = Telemetry(tmp_path, "miner", "5F", "disabled", "demo")
        telemetry.event("round", step=1)
        telemetry.close()
    assert len(events(tmp_path)) == 2


def test_wandb_mirrors_rounds_offline(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_SILENT", "true")
    telemetry = Telemetry(tmp_path, "miner", "5F", "offline", "demo")
    telemetry.event("round", step=1, loss=2.5, digest="ab")
    telemetry.close()
    runs = list((tmp_path / "wandb").glob("offline-run-*/*.wandb"))
    assert len(runs) == 1
    # wandb's own process writes the file, and may still be at it.
    limit = time.monotonic() + 30
    while b"loss" not in runs[0].read_bytes():
        assert time.monotonic() < limit
        time.sleep(0.05)
    assert events(tmp_path)[0]["loss"] == 2.5


def test_progress_is_told_once_a_second_and_at_the_end():
    clock = [100.0]
    told = []
    progress = Progress(lambda done, total: told.append((done, total)), now=lambda: clock[0])
    for done in range(1000):
        progress(done, 999)
        clock[0] += 0.01
    assert len(told) == 11
    assert told[0] == (0, 999) and told[-1] == (999, 999)
    progress(999, 999)  # whatever is empty at the end
    assert len(told) == 11


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (1_234_567, "1.2 MB"), (99_960, "100 kB"), (999_600, "1.0 MB"),
     (5_600_000_000, "5.6 GB"), (7e12, "7000 GB")],
)  # fmt: skip
def test_bytes_for_people(num_bytes, text):
    assert size(num_bytes) == text

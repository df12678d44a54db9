import json
import time

from subnet.telemetry import METRICS_FILE, Telemetry


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

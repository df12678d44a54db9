"""`./run`: what it says while it installs, when that fails, and when there is nothing to do.

The script is real, and so are the virtual environment and pip; what it installs is a package made here, with no index.
"""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest

from tests.conftest import ROOT

PATIENCE = 120.0
BACKEND = """
import os, zipfile
def build_editable(folder, config_settings=None, metadata_directory=None):
    with zipfile.ZipFile(os.path.join(folder, "sn38-1-py3-none-any.whl"), "w") as wheel:
        wheel.writestr("sn38-1.dist-info/METADATA", "Metadata-Version: 2.1\\nName: sn38\\nVersion: 1\\n")
        wheel.writestr("sn38-1.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr("sn38-1.dist-info/RECORD", "")
        wheel.writestr("sn38-1.dist-info/entry_points.txt", "[console_scripts]\\nsn38 = brick:main\\n")
    return "sn38-1-py3-none-any.whl"
"""


@pytest.fixture(scope="module")
def venv_made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout with the real script, whose one requirement lies beside it, and with nothing installed yet."""
    root = tmp_path_factory.mktemp("checkout")
    shutil.copy(ROOT / "run", root / "run")
    (root / "setup.py").touch()
    (root / "backend.py").write_text(BACKEND)
    project = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    (root / "pyproject.toml").write_text(project)
    with zipfile.ZipFile(root / "brick-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("brick.py", "def main():\n    print('laid')\n")
        wheel.writestr("brick-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: brick\nVersion: 1\n")
        wheel.writestr("brick-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("brick-1.dist-info/RECORD", "")
    return root


def lock(root: Path, requirement: str) -> None:
    (root / "requirements.lock").write_text(f"--no-index\n--find-links {root}\n{requirement}\n")


def run(root: Path, *argv: str, **changes: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHON": sys.executable, "PIP_CONFIG_FILE": os.devnull} | changes
    command = ["sh", str(root / "run"), *argv]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=environment)


def on_a_terminal(root: Path, *argv: str) -> str:
    """What a person sees."""
    mine, theirs = pty.openpty()
    seen: list[bytes] = []

    def read() -> None:
        try:
            while data := os.read(mine, 65536):
                seen.append(data)
        except OSError:  # the terminal's other end is closed
            pass

    reader = threading.Thread(target=read)
    reader.start()
    try:
        command = ["sh", str(root / "run"), *argv]
        environment = os.environ | {"PYTHON": sys.executable, "PIP_CONFIG_FILE": os.devnull}
        subprocess.run(command, stdout=theirs, stderr=theirs, timeout=PATIENCE, env=environment)
    finally:
        os.close(theirs)
        reader.join(PATIENCE)
        os.close(mine)
    return b"".join(seen).decode()


def test_installing_says_each_step_and_then_nothing(venv_made: Path) -> None:
    root = venv_made
    lock(root, "no-such-brick==1")
    failed = run(root, "install")
    assert failed.returncode == 2 and failed.stdout == ""
    last = failed.stderr.splitlines()[-1]
    assert last.startswith(
        "error: installing requirements.lock failed: No matching distribution found for no-such-brick"
    )
    assert "set PYTHON to another" in last and "run this again" in last

    lock(root, "brick==1")
    done = run(root, "install")
    assert done.returncode == 0, done.stderr
    assert " s  Installing collected packages: brick" in done.stderr and "installed in" in done.stderr
    assert run(root, "anything").stdout == "laid\n" and run(root, "anything").stderr == ""

    lock(root, "brick<2")
    seen = on_a_terminal(root, "install")
    assert "Requirement already satisfied: brick<2" in seen, "pip's own words"
    assert "installed in" in seen


def test_an_index_out_of_reach_is_said_with_its_remedy(venv_made: Path) -> None:
    (venv_made / "requirements.lock").write_text("--index-url http://127.0.0.1:9/\nno-such-brick==1\n")
    failed = run(venv_made, "install", PIP_RETRIES="0")
    assert failed.returncode == 2
    assert "the Python package index cannot be reached: mend the network" in failed.stderr.splitlines()[-1]

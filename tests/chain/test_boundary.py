"""Only `subnet.chain` may import the SDK, and nobody above the embedded chain may import that.

But for its arithmetic of consensus, which the arena pays by.
"""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]


def imports(file: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.add(node.module)
    return names


def test_layers() -> None:
    files = [*(ROOT / "subnet").rglob("*.py"), *(ROOT / "neurons").rglob("*.py")]
    assert len(files) > 10
    for file in files:
        package = file.relative_to(ROOT).parts[:2]
        for name in imports(file):
            if name.split(".")[0] == "bittensor":
                assert package == ("subnet", "chain"), f"{file}: {name}"
            if name.split(".")[0] == "bittensor_core":
                assert package in {("subnet", "chain"), ("subnet", "localnet")}, f"{file}: {name}"
            if name.startswith("subnet.localnet"):
                pays = package == ("subnet", "attack") and name.startswith("subnet.localnet.consensus")
                assert pays or package == ("subnet", "localnet"), f"{file}: {name}"

"""Network namespaces for benchmarks that count what crosses a wire: Linux, iproute2, and user namespaces."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

_CLONE_NEWNET = 0x40000000


def ip(arguments: str) -> None:
    """Run `ip` with these arguments. Raises CalledProcessError."""
    subprocess.run(["ip", *arguments.split()], check=True)


@contextlib.contextmanager
def inside(name: str) -> Iterator[None]:
    """Children started meanwhile live in the network namespace `name`."""
    here = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    there = os.open(f"/run/netns/{name}", os.O_RDONLY)
    try:
        _enter(there)
        yield
    finally:
        _enter(here)
        os.close(here)
        os.close(there)


def become_root(*program: str) -> None:
    """Become `program` as root of a user namespace with a network and mounts of its own; return if that fails."""
    unshare = ["unshare", "--user", "--map-root-user", "--net", "--mount"]
    if shutil.which("unshare") and shutil.which("ip") and subprocess.run([*unshare, "true"]).returncode == 0:
        os.execvp("unshare", [*unshare, sys.executable, *program])


def _enter(namespace: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(namespace, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")

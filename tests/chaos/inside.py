"""Begins this program again in namespaces of its own, where it may cut cables and mount disks."""

import os
import shutil
import subprocess
import sys
from typing import Final

INSIDE: Final = "GOQUEUE_CHAOS_INSIDE"
UNSHARE: Final = (
    *("unshare", "--net", "--mount", "--pid", "--fork"),
    *("--kill-child", "--mount-proc", "--propagation", "private"),
)


def missing() -> str:
    """Return why real networks cannot be broken on this machine; empty if they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    absent = [one for one in ("ip", "tc", "unshare", "sysctl", "strace") if not shutil.which(one)]
    if absent:
        return f"not installed: {', '.join(absent)}"
    tried = subprocess.run([*UNSHARE, "true"], capture_output=True, check=False, timeout=30)
    return "" if tried.returncode == 0 else "this machine allows no network namespaces"


def begin_inside(module: str, arguments: list[str]) -> int:
    """Run a module in fresh namespaces; all that it started ends with it."""
    command = [*UNSHARE, sys.executable, "-m", module, *arguments]
    return subprocess.run(command, env={**os.environ, INSIDE: "1"}, check=False).returncode


def prepare() -> None:
    """Give this process a place for the names of its namespaces, which no other one sees."""
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True, timeout=30)

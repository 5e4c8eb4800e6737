"""Real nodes in network namespaces are attacked; every promise is checked afterwards.

``make chaos`` does it for longer, with all kinds of faults.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.inside import missing

ROOT = Path(__file__).parents[2]
CYCLES = int(os.environ.get("GOQUEUE_CHAOS_CYCLES", "3"))
SEED = int(os.environ.get("GOQUEUE_CHAOS_SEED", "16"))
KINDS = os.environ.get("GOQUEUE_CHAOS_KINDS", "kill,cut-off,kill-all")
SECONDS_MAX = 120 + 180 * CYCLES


@pytest.mark.slow
def test_a_cluster_keeps_its_promises_while_it_is_attacked() -> None:
    """P1 to P4, P6, P7, P9 over three real nodes that are killed and cut off."""
    if why := missing():
        pytest.skip(why)
    command = [sys.executable, "-m", "tests.chaos", "--seed", str(SEED)]
    command += ["--cycles", str(CYCLES), "--kinds", KINDS]

    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr

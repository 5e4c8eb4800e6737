"""One node needs no quorum."""

import subprocess
import sys


def test_importing_goqueue_does_not_import_the_quorum() -> None:
    """A program that embeds a broker or connects to one does not pay for clusters."""
    script = (
        "import sys, goqueue, goqueue.aio, goqueue.embedded, goqueue.server\n"
        "print([name for name in sys.modules if '.raft' in name or '.cluster' in name])"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert run.stdout.strip() == "[]"

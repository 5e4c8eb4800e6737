"""Three nodes of a cluster on this machine: ``make cluster``. Ctrl-C stops them one by one."""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

NODES = 3
FIRST_PORT = 7000
FIRST_NATIVE = 7070
FIRST_HTTP = 8080
START_SECONDS = 60
STOP_SECONDS = 45


def environment(number: int) -> dict[str, str]:
    """Return the settings of one node."""
    peers = ",".join(f"node-{one + 1}@127.0.0.1:{FIRST_PORT + one}" for one in range(NODES))
    return {
        **os.environ,
        "GOQUEUE_CLUSTER_ENABLED": "true",
        "GOQUEUE_CLUSTER_PEERS": peers,
        "GOQUEUE_BROKER_NODEID": f"node-{number + 1}",
        "GOQUEUE_LISTENERS_INTERNAL": f"127.0.0.1:{FIRST_PORT + number}",
        "GOQUEUE_LISTENERS_NATIVE": f"127.0.0.1:{FIRST_NATIVE + number}",
        "GOQUEUE_LISTENERS_HTTP": f"127.0.0.1:{FIRST_HTTP + number}",
        "GOQUEUE_LOG_FORMAT": "json",
    }


def start(home: Path, number: int) -> "subprocess.Popen[bytes]":
    """Start one node; its log is a file beside its data."""
    name = f"node-{number + 1}"
    with (home / f"{name}.log").open("ab") as log:
        return subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-m", "goqueue", "serve", "--data", str(home / name)],
            env=environment(number),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # Ctrl-C is for this program, which stops the nodes one after the other.
            start_new_session=True,
        )


def wait(home: Path, running: "list[subprocess.Popen[bytes]]") -> bool:
    """Wait until all nodes serve; return False if one ended."""
    deadline = time.monotonic() + START_SECONDS
    logs = [home / f"node-{number + 1}.log" for number in range(NODES)]
    while time.monotonic() < deadline:
        if any(one.poll() is not None for one in running):
            return False
        if all('"listening"' in log.read_text(errors="replace") for log in logs):
            return True
        time.sleep(0.1)
    return False


def stop(running: "list[subprocess.Popen[bytes]]") -> None:
    """Stop the nodes, each when the one before it is gone."""
    for one in running:
        if one.poll() is None:
            one.send_signal(signal.SIGTERM)
            one.wait(STOP_SECONDS)


def tell(home: Path, pids: list[int]) -> None:
    """Say what runs where, and what to try."""
    program = "goqueue" if shutil.which("goqueue") else f"{sys.executable} -m goqueue"
    say(f"\nThree nodes are one cluster. Their data and logs are in {home}\n")
    for number, pid in enumerate(pids):
        say(
            f"  node-{number + 1}  native 127.0.0.1:{FIRST_NATIVE + number}"
            f"  http 127.0.0.1:{FIRST_HTTP + number}  pid {pid}"
        )
    say("\nTry in another terminal:\n")
    for line in (
        f"{program} cluster nodes",
        f"{program} cluster info",
        f"kill -9 {pids[0]}        # any of them: the others go on",
        f"{program} cluster health --node 127.0.0.1:{FIRST_PORT + 1}",
    ):
        say(f"  {line}")
    say("\nCtrl-C stops all of them, one after the other.")


def say(text: str) -> None:
    """Print a line."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    """Run three nodes until Ctrl-C, or for some seconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="where the nodes keep their data")
    parser.add_argument("--seconds", type=float, default=0, help="end by itself after so long")
    options = parser.parse_args()
    home = options.data or Path(tempfile.mkdtemp(prefix="goqueue-cluster-"))
    home.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    say("starting three nodes")
    running = [start(home, number) for number in range(NODES)]
    try:
        if not wait(home, running):
            say(f"the nodes did not start; look into {home}/node-1.log")
            return 1
        tell(home, [one.pid for one in running])
        until = time.monotonic() + (options.seconds or float("inf"))
        while time.monotonic() < until and any(one.poll() is None for one in running):
            time.sleep(0.2)
    except KeyboardInterrupt:
        say("\nstopping, one after the other")
    finally:
        stop(running)
    say("stopped")
    return 0


if __name__ == "__main__":
    sys.exit(main())

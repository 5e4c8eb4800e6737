"""The snippets of a document, run in order as a reader would, in one folder beside one broker.

A comment above a snippet, which readers do not see, says what cannot be seen from the snippet:

    <!-- not run: why -->                                    nobody runs it here
    <!-- saved as: shop.yaml -->                             a file that later snippets use
    <!-- runs until Ctrl-C, after: text -->                  it is ended when it has printed that
    <!-- runs beside the next, until Ctrl-C, after: text --> the same; the next one is run, and if
                                                             need be again, to make it print that
    <!-- given:
    shell commands                                           what the page takes for granted
    -->
"""

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tests.acceptance.served import Served

SECONDS_MAX = 120
"""For a machine on which everything else runs, too."""
POLL_SECONDS = 0.05
RUN = ("python", "sh")
SAVED = ("yaml", "json", "python")
SHOWN = ("text",)
"""Blocks that show output, formats or files, which there is no way to run."""

_SNIPPET = re.compile(
    r"^(?:<!-- (?P<mark>(?:not run|saved as|runs)[^\n]*) -->\n\n?)?"
    r"^```(?P<language>[a-z]*)\n(?P<text>.*?)^```$"
    r"|^<!-- given:\n(?P<given>.*?)^-->$",
    re.MULTILINE | re.DOTALL,
)
_UNTIL = re.compile(r"runs (?P<beside>beside the next, )?until Ctrl-C, after: (?P<text>.+)")

RunHere = Callable[["Snippet"], bool]
"""Runs a snippet in this process if it is one of those, and tells whether it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snippet:
    """A block of code of a page."""

    place: str
    language: str
    text: str
    mark: str = ""

    @property
    def is_run(self) -> bool:
        return self.language in RUN and not self.mark.startswith(("not run", "saved as"))

    @property
    def why_not(self) -> str:
        """Return why nobody runs it, or nothing."""
        return self.mark.removeprefix("not run: ") if self.mark.startswith("not run: ") else ""

    @property
    def saved_as(self) -> str:
        """Return the name of the file it is, or nothing."""
        return self.mark.removeprefix("saved as: ") if self.mark.startswith("saved as: ") else ""


def snippets_of(page: Path) -> Iterator[Snippet]:
    """Yield the snippets of a page, and what it takes for granted, in their order."""
    content = page.read_text()
    for found in _SNIPPET.finditer(content):
        line = content.count("\n", 0, found.start()) + 1
        place = f"{page.name}:{line}"
        if found["given"] is not None:
            yield Snippet(place=place, language="sh", text=found["given"], mark="given")
            continue
        language, text = found["language"], found["text"]
        yield Snippet(place=place, language=language, text=text, mark=found["mark"] or "")


def commands_of(script: str) -> list[str]:
    """Return the commands of a script, those over several lines in one piece."""
    joined = script.replace("\\\n", " ")
    return [line for line in joined.splitlines() if line.strip() and not line.startswith("#")]


def replaced_by(broker: Served, folder: Path) -> dict[str, str]:
    """Return what differs from a reader's machine: the ports, and folders a test may not write."""
    return {
        "goqueue.connect()": f'goqueue.connect("{broker.address}")',
        "127.0.0.1:7070": broker.address,
        '("127.0.0.1", 7070)': repr(_host_and_port(broker.address)),
        "127.0.0.1:8080": broker.http_address,
        "localhost:8080": broker.http_address,
        "--metrics-port 9105": "--metrics-port 0",
        '"./checkpoints': f'"{folder}/checkpoints',
        "/var/lib/goqueue": str(broker.data_dir),
        "/backup": str(folder / "backup"),
    }


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


class Reader:
    """Somebody who follows a page from its top to its end, with one broker and one folder."""

    def __init__(self, folder: Path, broker: Served, *, here: RunHere | None = None) -> None:
        self._folder = folder
        self._replaced = replaced_by(broker, folder)
        self._here = here
        self._started: list[_Endless] = []
        self._beside: _Endless | None = None
        programs = folder / ".venv" / "bin"
        if not programs.parent.exists():
            programs.parent.symlink_to(sys.prefix)
        self._environment = {
            **{name: text for name, text in os.environ.items() if not name.startswith("GOQUEUE_")},
            "HOME": str(folder),
            "PATH": f"{programs}:{os.environ['PATH']}",
            "GOQUEUE_SERVER": broker.address,
            "GOQUEUE_LISTENERS_NATIVE": "127.0.0.1:0",
            "GOQUEUE_LISTENERS_HTTP": "127.0.0.1:0",
            "PYTHONUNBUFFERED": "1",
        }

    def follow(self, page: Path) -> None:
        """Run a page; the first snippet that fails is an assertion with what it printed."""
        try:
            for snippet in snippets_of(page):
                self._take(snippet)
                while self._beside is not None and snippet.is_run and not self._is_beside(snippet):
                    if self._beside.has_printed():
                        self._beside.end()
                        self._beside = None
                    else:
                        # It may not have listened yet.
                        self._take(snippet)
        finally:
            for one in self._started:
                one.kill()

    @staticmethod
    def _is_beside(snippet: Snippet) -> bool:
        return snippet.mark.startswith("runs beside")

    def _take(self, snippet: Snippet) -> None:
        text = snippet.text
        for written, meant in self._replaced.items():
            text = text.replace(written, meant)
        if snippet.saved_as:
            (self._folder / snippet.saved_as).write_text(text)
        elif snippet.mark == "given":
            self._run(snippet, ["bash", "-e", "-c", text])
        elif snippet.is_run:
            aimed = replace(snippet, text=text)
            if self._here is None or not self._here(aimed):
                self._run_process(aimed)

    def _run_process(self, snippet: Snippet) -> None:
        if snippet.language == "python":
            file = self._folder / f"snippet-{snippet.place.replace(':', '-')}.py"
            file.write_text(snippet.text)
            self._run(snippet, [sys.executable, str(file)])
            return
        for command in commands_of(snippet.text):
            line = replace(snippet, text=f"{command}\n")
            if self._here is None or not self._here(line):
                self._run(line, ["bash", "-e", "-o", "pipefail", "-c", command])

    def _run(self, snippet: Snippet, arguments: list[str]) -> None:
        until = _UNTIL.fullmatch(snippet.mark)
        log = self._folder / f"output-{len(list(self._folder.glob('output-*')))}"
        with log.open("wb") as output:
            process = subprocess.Popen(
                arguments,
                cwd=self._folder,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,
            )
        assert process.stdin is not None
        # What a reader types who is asked.
        with contextlib.suppress(BrokenPipeError), process.stdin:
            process.stdin.write(b"yes\n")
        running = _Endless(snippet, process, log, until["text"] if until else "")
        self._started.append(running)
        if until is None:
            running.finish()
        elif until["beside"]:
            self._beside = running
        else:
            running.end()


class _Endless:
    """A snippet in a process of its own, and all it has printed."""

    def __init__(
        self, snippet: Snippet, process: subprocess.Popen[bytes], log: Path, wanted: str
    ) -> None:
        self._snippet = snippet
        self._process = process
        self._log = log
        self._wanted = wanted

    def finish(self) -> None:
        """Wait until it ends by itself; it must not fail."""
        self._process.wait(SECONDS_MAX)

        assert self._process.returncode == 0, self._told("failed")

    def has_printed(self) -> bool:
        """Tell whether it has printed what it should; it must not end before that."""
        found = self._wanted in self._output

        assert found or self._process.poll() is None, self._told(f"ended without {self._wanted!r}")
        return found

    def end(self) -> None:
        """Press Ctrl-C when it has printed what it should."""
        deadline = time.monotonic() + SECONDS_MAX
        pause = threading.Event()
        while not self.has_printed():
            assert time.monotonic() < deadline, self._told(f"never printed {self._wanted!r}")
            pause.wait(POLL_SECONDS)
        os.killpg(self._process.pid, signal.SIGINT)
        self._process.wait(SECONDS_MAX)

        # By itself, as a shell tells it, or as Python ends when nobody catches a Ctrl-C.
        ended = {0, 128 + signal.SIGINT, -signal.SIGINT}
        assert self._process.returncode in ended, self._told("did not end well")

    def kill(self) -> None:
        """End it whatever it does."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(SECONDS_MAX)

    @property
    def _output(self) -> str:
        return self._log.read_text(errors="replace")

    def _told(self, what: str) -> str:
        return f"{self._snippet.place} {what}:\n{self._snippet.text}\n{self._output[-4_000:]}"


def words_of(command: str) -> list[str]:
    """Return the words of a command as a shell reads them, without its comment."""
    return shlex.split(command, comments=True)

"""What Spark's errors say, in a line a person can use.

Shape: calculator.
"""

import re
from typing import Final

BRIEF_CHARACTERS: Final = 1_500
_STREAM: Final = re.compile(r"^\[STREAM_FAILED\] Query .*? terminated with exception: ", re.DOTALL)
_END: Final = re.compile(
    r"\n=== Streaming Query ===|\n\nJVM stacktrace|\n\s+at [\w.$]+\(|;?\n'?[A-Z+~]\w* "
)
_STATE: Final = re.compile(r"\s*SQLSTATE: \w{5}")
_RAISED: Final = re.compile(r"^(?:[A-Za-z_][\w.]*\.)?([A-Z]\w*(?:Error|Exception|Failure)): (.*)$")
_JAVA: Final = re.compile(r"^: (?:[\w$]+\.)*\w+(?:Exception|Error): (.*)$")
"""What Java raised, in the line behind the exception by which Python tells of it."""
_NOISE: Final = frozenset({"Py4JJavaError", "PythonException", "SparkException"})


def brief(error: BaseException | str) -> str:
    """Return the reason without plans and traces: the last exception of Python, if there is one."""
    text = str(error)
    raised = _last_raised(text)
    if raised:
        return raised[:BRIEF_CHARACTERS]
    text = _STREAM.sub("", text)
    end = _END.search(text)
    text = text[: end.start()] if end else text
    text = _STATE.sub("", text).strip().rstrip(";")
    return text[:BRIEF_CHARACTERS] or type(error).__name__


def _last_raised(text: str) -> str:
    """Return what the last line of a Python traceback in a text says."""
    _, mark, trace = text.rpartition("Traceback (most recent call last)")
    if not mark:
        return ""
    found = ""
    lines = trace.splitlines()
    for place, line in enumerate(lines):
        match = _RAISED.match(line)
        if match and match[1] not in _NOISE:
            more = _following(lines[place + 1 :])
            said = _STATE.sub("", "\n".join([match[2], *more])).strip()
            is_ours = match[1] in {"LakeError", "PipelineError", "OptionsError"}
            found = said if is_ours else f"{match[1]}: {said}"
        java = _JAVA.match(line)
        if java and not found:
            found = _STATE.sub("", java[1]).strip()
    return found


def _following(lines: list[str]) -> list[str]:
    """Return the lines that belong to a message of several."""
    more: list[str] = []
    for line in lines:
        if not line.startswith("  ") or line.lstrip().startswith(("at ", "File ")):
            break
        more.append(line)
    return more

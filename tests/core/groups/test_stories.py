"""Groups, told as stories. See tests/golden/groups."""

import os
from pathlib import Path

import pytest

from goqueue.testing import golden
from tests.core.groups.shell import GroupShell

SCRIPTS = sorted((Path(__file__).parents[2] / "golden" / "groups").glob("*.txt"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_story(script: Path) -> None:
    """The group behaves as the script says."""
    text = script.read_text()
    actual = golden.run(text, GroupShell().execute)
    if os.environ.get("GOLDEN_REWRITE"):
        script.write_text(actual)

    assert actual == text

"""Files that stay open for a while because a client on this machine is about to open them."""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final

REPLIES_HELD: Final = 2
"""Files of so many replies stay open: a reader asks again before it opens those of the last."""

FILES_SECONDS: Final = 10.0
"""How long they stay open at most; who comes later reads through the broker."""


class HeldFiles:
    """Belongs to a connection."""

    def __init__(self) -> None:
        self._replies: deque[Sequence[object]] = deque(maxlen=REPLIES_HELD)

    def __repr__(self) -> str:
        return f"<HeldFiles of {len(self._replies)} replies>"

    def hold(self, files: Sequence[object]) -> None:
        """Keep the files of a reply open for a while."""
        self._replies.append(files)
        asyncio.get_running_loop().call_later(FILES_SECONDS, self._let_go, files)

    def clear(self) -> None:
        """Let go of all files."""
        self._replies.clear()

    def _let_go(self, files: Sequence[object]) -> None:
        if self._replies and self._replies[0] is files:
            self._replies.popleft()

"""How a caller from another machine proves, over HTTP, that it has the key of a cluster.

Shape: codec. It shows with each request the HMAC-SHA256 of its method, path, time and body under
the key: the key itself does not travel, and a request that was overheard is worth nothing a minute
later.
"""

import hashlib
import hmac
from typing import Final

TIME_HEADER: Final = "x-goqueue-time"
PROOF_HEADER: Final = "x-goqueue-proof"
PROOF_MS_MAX: Final = 60_000
"""How far the time of a proof may be from the clock of the node."""


def proof_of(key: bytes, method: str, path: str, time_ms: int, body: bytes) -> str:
    """Return what a caller shows with a request."""
    told = b"\n".join((b"goqueue http", method.encode(), path.encode(), b"%d" % time_ms, body))
    return hmac.new(key, told, hashlib.sha256).hexdigest()

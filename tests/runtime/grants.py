"""Grants for tests that call the runtime themselves."""

from typing import Final

from goqueue.base.caller import EMBEDDED
from goqueue.base.deeds import Deed
from goqueue.service.gate import Gate

FETCHING: Final = Gate().admit(EMBEDDED, Deed.FETCH)
PUBLISHING: Final = Gate().admit(EMBEDDED, Deed.PUBLISH)
POLLING: Final = Gate().admit(EMBEDDED, Deed.POLL)
SETTLING: Final = Gate().admit(EMBEDDED, Deed.SETTLE)
NEXT: Final = Gate().admit(EMBEDDED, Deed.NEXT)

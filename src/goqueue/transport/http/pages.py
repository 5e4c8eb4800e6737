"""Pages for people: where to go from here, and the documentation with a form to try it."""

import base64
import hashlib
import html
import re
from collections.abc import Sequence
from functools import cached_property
from http import HTTPStatus
from importlib.resources import files
from typing import Any, Final

from goqueue.base.deeds import Deed
from goqueue.service.health import package_version
from goqueue.service.service import Service
from goqueue.transport.http.call import Call
from goqueue.transport.http.openapi import build_document
from goqueue.transport.http.operation import Answer, Operation
from goqueue.transport.http.reply import JSON, Response, encode, raw_reply

TAG: Final = "pages"
HTML: Final = "text/html; charset=utf-8"
_INLINE: Final = re.compile(r"<(style|script)>(.*?)</\1>", re.DOTALL)


class PageRoutes:
    """Serves the pages. They load nothing from anywhere else."""

    def __init__(self, service: Service, described: Sequence[Operation]) -> None:
        home = _read("home.html")
        for name, text in (("node", service.config.node_id), ("version", package_version())):
            home = home.replace(f"{{{{{name}}}}}", html.escape(text))
        self._home = _Page(home)
        self._docs = _Page(_read("docs.html"))
        self._described = described

    def operations(self) -> tuple[Operation, ...]:
        """Return what can be looked at."""
        return (
            _get("/", self.home, Deed.READ_DOCUMENTATION, HTML),
            _get("/docs", self.docs, Deed.READ_DOCUMENTATION, HTML),
            _get("/openapi.json", self.openapi, Deed.READ_DOCUMENTATION, dict[str, Any]),
        )

    async def home(self, _call: Call) -> Response:
        """Name the broker and show the way."""
        return self._home.reply()

    async def docs(self, _call: Call) -> Response:
        """Show this documentation, with a form to try every request."""
        return self._docs.reply()

    async def openapi(self, _call: Call) -> Response:
        """Return this description of the API, OpenAPI 3.1."""
        return raw_reply(self._document, media_type=JSON)

    @cached_property
    def _document(self) -> bytes:
        """Made at the first request: a start is faster and smaller without."""
        everything = (*self._described, *self.operations())
        return encode(build_document(everything, version=package_version()))


class _Page:
    """A page that may only run its own inline style and script."""

    def __init__(self, text: str) -> None:
        self._body = text.encode()
        allowed: dict[str, str] = {"style": "'none'", "script": "'none'"}
        for kind, content in _INLINE.findall(text):
            digest = hashlib.sha256(content.encode()).digest()
            allowed[kind] = f"'sha256-{base64.b64encode(digest).decode()}'"
        policy = (
            f"default-src 'none'; style-src {allowed['style']}; script-src {allowed['script']};"
            " connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none';"
            " frame-ancestors 'none'"
        )
        self._headers = {"Content-Security-Policy": policy, "Referrer-Policy": "no-referrer"}

    def reply(self) -> Response:
        return raw_reply(self._body, HTTPStatus.OK, media_type=HTML, headers=self._headers)


def _read(name: str) -> str:
    return (files(__package__) / "pages" / name).read_text()


def _get(path: str, answer: Answer, deed: Deed, reply: object) -> Operation:
    return Operation(
        method="GET", path=path, answer=answer, deed=deed, tag=TAG, reply=reply, is_versioned=False
    )

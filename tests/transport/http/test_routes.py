"""Which path leads where."""

import pytest

from goqueue.transport.http.routes import Routes


@pytest.fixture
def routes() -> Routes[str]:
    found: Routes[str] = Routes()
    for path in (
        "/",
        "/topics",
        "/topics/{topic}",
        "/topics/{topic}/messages",
        "/schemas/ids/{id}",
        "/schemas/{subject}/versions/{version}",
    ):
        found.add(path, path)
    return found


@pytest.mark.parametrize(
    ("path", "target", "parameters"),
    [
        ("/", "/", {}),
        ("/topics", "/topics", {}),
        ("/topics/a", "/topics/{topic}", {"topic": "a"}),
        ("/topics/a b\n/messages", "/topics/{topic}/messages", {"topic": "a b\n"}),
        ("/schemas/ids/7", "/schemas/ids/{id}", {"id": "7"}),
        (
            "/schemas/ids/versions/1",
            "/schemas/{subject}/versions/{version}",
            {"subject": "ids", "version": "1"},
        ),
    ],
)
def test_a_path_leads_to_one_place(
    routes: Routes[str], path: str, target: str, parameters: dict[str, str]
) -> None:
    """A part that is written down goes before a parameter, unless it leads nowhere."""
    assert routes.find(path) == (target, parameters)


@pytest.mark.parametrize(
    "path", ["", "topics", "/topics/", "/topics//messages", "/topics/a/", "//", "/schemas/ids"]
)
def test_any_other_path_leads_nowhere(routes: Routes[str], path: str) -> None:
    """A parameter is never empty, and a slash more or less is another path."""
    assert routes.find(path) is None

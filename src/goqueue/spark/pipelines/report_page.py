"""A report as one HTML file that loads nothing from elsewhere: tables, and plots as SVG."""

import io
from collections.abc import Mapping, Sequence
from datetime import datetime
from html import escape
from typing import Any, Final

STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1c2330; max-width: 70em; margin: 2em auto; }
h1 { font-size: 1.6em } h2 { font-size: 1.15em; margin-top: 2em }
table { border-collapse: collapse; min-width: 40em }
th, td { text-align: left; padding: .25em .8em .25em 0; border-bottom: 1px solid #dde2ea;
  vertical-align: top; overflow-wrap: anywhere }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
svg { max-width: 100%; height: auto } .dim { color: #66738a }
@media (prefers-color-scheme: dark) { body { background: #10141b; color: #dde4ee }
  th, td { border-color: #2b3442 } .plot { background: #fff; border-radius: 6px } }
"""
FIGURE_INCHES: Final = (9.0, 3.2)


def page(title: str, sections: Sequence[str]) -> str:
    """Return a whole page."""
    return (
        "<!doctype html>\n<html lang=en><head><meta charset=utf-8>"
        '<meta name=viewport content="width=device-width">'
        "<meta http-equiv=Content-Security-Policy content=\"default-src 'none';"
        " style-src 'unsafe-inline'; img-src data:\">"
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>"
        f"<h1>{escape(title)}</h1>\n" + "\n".join(sections) + "\n</body></html>\n"
    )


def paragraph(text: str) -> str:
    """Return a paragraph."""
    return f"<p>{escape(text)}</p>"


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table with a heading; columns that begin with ``>`` are numbers."""
    rights = [" class=n" if column.startswith(">") else "" for column in columns]
    head = "".join(
        f"<th{right}>{escape(column.removeprefix('>'))}</th>"
        for column, right in zip(columns, rights, strict=True)
    )
    lines = "".join(
        "<tr>"
        + "".join(
            f"<td{right}>{escape(str(cell))}</td>" for cell, right in zip(row, rights, strict=True)
        )
        + "</tr>\n"
        for row in rows
    )
    empty = "" if rows else "<p class=dim>nothing</p>"
    return f"<h2>{escape(title)}</h2><table><tr>{head}</tr>\n{lines}</table>{empty}"


def plot(title: str, svg: str) -> str:
    """Return a plot with a heading."""
    return f"<h2>{escape(title)}</h2><div class=plot>{svg}</div>"


def stacked_bars(
    series: Mapping[str, Mapping[datetime, int]], times: Sequence[datetime], *, label: str
) -> str:
    """Return bars over time, one colour for each series, as SVG; ``times`` are all there is."""
    figure, axes = _figure()
    below = [0.0] * len(times)
    numbers = range(len(times))
    for name, counts in series.items():
        heights = [float(counts.get(at, 0)) for at in times]
        axes.bar(numbers, heights, bottom=below, label=_plain(name), width=0.9)
        below = [low + high for low, high in zip(below, heights, strict=True)]
    every = max(len(times) // 8, 1)
    axes.set_xticks(list(numbers)[::every], [f"{at:%m-%d %H:%M}" for at in times[::every]])
    axes.tick_params(axis="x", labelrotation=20, labelsize=8)
    axes.set_ylabel(label)
    axes.legend(fontsize=8)
    return _svg(figure)


def bars(values: Mapping[str, float], *, label: str) -> str:
    """Return horizontal bars, the first on top, as SVG."""
    figure, axes = _figure(height=max(1.2, 0.32 * len(values) + 0.6))
    names = list(values)[::-1]
    axes.barh([_plain(name) for name in names], [values[name] for name in names])
    axes.set_xlabel(label)
    axes.tick_params(axis="y", labelsize=8)
    return _svg(figure)


def _plain(text: str) -> str:
    """Return text that matplotlib shows as it is: $ would begin a formula, _ hide a label."""
    cut = text if len(text) <= 60 else f"{text[:59]}…"  # noqa: PLR2004
    return cut.replace("$", "\\$").lstrip("_") or "-"


def _figure(height: float = FIGURE_INCHES[1]) -> tuple[Any, Any]:
    # Without pyplot there is no global state and no window.
    from matplotlib.figure import Figure  # noqa: PLC0415 - slow to load

    figure = Figure(figsize=(FIGURE_INCHES[0], height), layout="constrained")
    axes = figure.subplots()
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure, axes


def _svg(figure: Any) -> str:  # noqa: ANN401 - matplotlib is loaded late
    from matplotlib import rc_context  # noqa: PLC0415

    target = io.StringIO()
    with rc_context({"svg.hashsalt": "goqueue"}):
        figure.savefig(target, format="svg", metadata={"Date": None, "Creator": None})
    text = target.getvalue()
    return text[text.index("<svg") :]

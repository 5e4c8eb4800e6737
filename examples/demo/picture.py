"""The picture of a run: how fast orders came and went, how long they took, where they ended."""

from collections import Counter
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

from examples.demo.books import Books, where_rows_went
from examples.demo.readback import Traces
from examples.demo.times import SECOND_US

SIZE_INCHES: Final = (13, 8)
DOTS_PER_INCH: Final = 110
INK: Final = "#24313f"
PALE: Final = "#8a97a5"
BLUE: Final = "#3b7dd8"
GREEN: Final = "#2fa36b"
COLOURS: Final = {
    "invoices": GREEN,
    "clean": BLUE,
    "repeats": "#c9d2dc",
    "dead letters": "#d1495b",
    "quarantined": "#e9a13b",
}
CATEGORY_COLOURS: Final = ("#3b7dd8", "#2fa36b", "#e9a13b", "#8e6bbf", "#d1495b", "#56b4c9")
WIDE_SHARE: Final = 0.05
"""Pieces of a bar at least so wide have their name in them."""
WINDOWS_SHOWN: Final = 40


def draw(books: Books, traces: Traces, path: Path, *, live_us: int) -> Path | None:
    """Draw a run into a file; None where matplotlib is not installed or nothing was published."""
    if not books.intake.rows:
        return None
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - slow to load
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError:
        return None
    figure = Figure(figsize=SIZE_INCHES, dpi=DOTS_PER_INCH, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(_title(books), color=INK, fontsize=15, fontweight="bold", x=0.012, ha="left")
    axes = figure.subplots(2, 2)
    began = min(traces.orders.arrived)
    live_s = live_us / SECOND_US - began
    _progress(axes[0][0], traces, began, live_s, has_pipeline=books.has_pipeline)
    _latencies(axes[0][1], traces, began, live_s, has_pipeline=books.has_pipeline)
    _destinations(axes[1][0], books)
    _revenue(axes[1][1], books)
    for one in axes.flat:
        _calm(one)
    axes[1][0].spines["left"].set_visible(False)
    figure.savefig(path)
    return path


def _title(books: Books) -> str:
    revenue = f", worth {books.clean.amount_cents / 100:,.0f}" if books.has_pipeline else ""
    return f"GoQueue demo: {books.intake.rows:,} orders{revenue}"


def _calm(axes: Any) -> None:  # noqa: ANN401 - matplotlib is loaded late
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(PALE)
    axes.tick_params(colors=INK, labelsize=9)


def _mark_start(axes: Any, live_s: float, last_s: float) -> None:  # noqa: ANN401
    is_late = live_s > last_s / 2
    axes.axvline(live_s, color=PALE, linestyle=":", linewidth=1)
    axes.annotate(
        "pipeline is up",
        (live_s, 0),
        xycoords=("data", "axes fraction"),
        xytext=(-4 if is_late else 4, 5),
        textcoords="offset points",
        ha="right" if is_late else "left",
        va="bottom",
        color=PALE,
        fontsize=8,
    )


def _progress(
    axes: Any,  # noqa: ANN401
    traces: Traces,
    began: int,
    live_s: float,
    *,
    has_pipeline: bool,
) -> None:
    last = max([*traces.orders.arrived, *traces.invoices.arrived, *traces.clean.arrived])
    seconds = range(began, last + 1)
    since = [second - began for second in seconds]
    published = list(accumulate(traces.orders.rates(seconds)))
    axes.fill_between(since, published, color="#dde5ee", label="published")
    drawn = [("invoiced by the group", GREEN, traces.invoices)]
    if has_pipeline:
        drawn.append(("clean by the pipeline", BLUE, traces.clean))
        _mark_start(axes, live_s, since[-1])
    for label, colour, trace in drawn:
        axes.plot(since, list(accumulate(trace.rates(seconds))), color=colour, label=label)
    axes.set_ylim(0, max(published) * 1.05)
    axes.set_xlim(0, max(since[-1], 1))
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_title("Orders so far", loc="left", fontsize=11, color=INK)
    axes.set_xlabel("seconds", color=INK)
    axes.legend(frameon=False, fontsize=9, loc="upper left")


def _latencies(
    axes: Any,  # noqa: ANN401
    traces: Traces,
    began: int,
    live_s: float,
    *,
    has_pipeline: bool,
) -> None:
    drawn = [("to its invoice (group)", GREEN, traces.invoices)]
    if has_pipeline:
        drawn.append(("to the clean topic (pipeline)", BLUE, traces.clean))
        _mark_start(axes, live_s, max(traces.orders.arrived) - began)
    for label, colour, trace in drawn:
        points = trace.means()
        found = trace.percentiles()
        told = f", p50 {found['p50_ms']:,} ms" if found else ""
        axes.plot(
            [second - began for second, _ in points],
            [max(mean, 1.0) for _, mean in points],
            color=colour,
            label=f"{label}{told}",
        )
    axes.set_yscale("log")
    bottom, top = axes.get_ylim()
    axes.set_ylim(bottom, top * 8)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_title("From publish to result, milliseconds", loc="left", fontsize=11, color=INK)
    axes.set_xlabel("second of publishing", color=INK)
    axes.legend(frameon=False, fontsize=9, loc="upper right")


def _destinations(axes: Any, books: Books) -> None:  # noqa: ANN401
    went = where_rows_went(books)
    total = books.intake.rows
    for place, (who, rows) in enumerate(went.items()):
        left = 0
        notes = []
        for name, count in rows.items():
            axes.barh(place, count, left=left, color=COLOURS[name], height=0.5)
            if count >= total * WIDE_SHARE:
                text = f"{name} {count:,}"
                axes.text(
                    left + count / 2, place, text, ha="center", va="center", color="white",
                    fontsize=10, fontweight="bold",
                )  # fmt: skip
            else:
                notes.append(f"{name} {count:,}")
            left += count
        note = ", ".join(notes)
        axes.text(total, place - 0.33, note, ha="right", va="bottom", color=INK, fontsize=9)
        axes.text(0, place - 0.33, who, ha="left", va="bottom", color=INK, fontsize=10)
    axes.set_ylim(len(went) - 0.5, -0.6)
    axes.set_yticks([])
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_title("Where the rows went", loc="left", fontsize=11, color=INK)


def _revenue(axes: Any, books: Books) -> None:  # noqa: ANN401
    axes.set_title("Revenue by window of 10 seconds", loc="left", fontsize=11, color=INK)
    windows = sorted({since for since, _ in books.totals.windows})[-WINDOWS_SHOWN:]
    if not windows:
        axes.text(0.5, 0.5, "no pipeline", ha="center", va="center", transform=axes.transAxes)
        return
    sums: Counter[str] = Counter()
    for (_, category), (_, cents) in books.totals.windows.items():
        sums[category] += cents
    bottoms = [0.0] * len(windows)
    for place, (category, _) in enumerate(sums.most_common()):
        heights = [books.totals.windows.get((one, category), (0, 0))[1] / 100 for one in windows]
        colour = CATEGORY_COLOURS[place % len(CATEGORY_COLOURS)]
        axes.bar(range(len(windows)), heights, bottom=bottoms, color=colour, label=category)
        bottoms = [below + height for below, height in zip(bottoms, heights, strict=True)]
    step = max(len(windows) // 6, 1)
    axes.set_xticks(range(0, len(windows), step), [one[11:19] for one in windows[::step]])
    axes.legend(frameon=False, fontsize=9, ncols=len(sums), loc="upper left")
    axes.set_ylim(0, max(bottoms) * 1.2)
    axes.yaxis.set_major_formatter("{x:,.0f}")

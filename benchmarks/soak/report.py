"""The end of a soak: what was done, what the broker held, and by how much it still grew."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks.soak.samples import MEGABYTE, Sample, last_half, per_minute

SLOPES_MAX: Final = {"uss": 0.5 * MEGABYTE, "files": 0.5, "threads": 0.2}
"""What counts as level: growth a minute in the last half.

Memory is judged by what is private to the broker (uss). Its resident memory (rss) has pages of
libraries in it as well, which the processes of the load share and bring in.
"""
NOT_JUDGED: Final = {"rss": "not judged: shared pages count", "data_bytes": "not judged"}


def line(sample: Sample) -> str:
    """Return one sample as a line."""
    return (
        f"{sample.seconds:7.0f} s   rss {sample.rss / MEGABYTE:6.1f} MB   "
        f"uss {sample.uss / MEGABYTE:6.1f} MB   files {sample.files:4d}   "
        f"threads {sample.threads:3d}   data {sample.data_bytes / MEGABYTE:7.1f} MB   "
        f"cpu {sample.processor_seconds:6.0f} s"
    )


def show(samples: Sequence[Sample], counts: Mapping[str, int], console: Console) -> bool:
    """Print the report; say whether everything is level and nothing failed."""
    done = Table("done", "count")
    for name, count in sorted(counts.items()):
        done.add_row(name, f"{count:,}")
    console.print(done)
    half = last_half(samples)
    if not half:
        return False
    table = Table("figure", "first", "middle", "last", "most", "a minute, last half", "level")
    is_level = True
    for field in ("rss", "uss", "files", "threads", "data_bytes"):
        scale = MEGABYTE if field in {"rss", "uss", "data_bytes"} else 1.0
        values = [getattr(sample, field) / scale for sample in samples]
        slope, most = per_minute(half, field), SLOPES_MAX.get(field)
        is_good = most is None or slope <= most
        is_level &= is_good
        shown = [values[0], values[-len(half)], values[-1], max(values)]
        name = f"{field} (MB)" if scale > 1 else field
        verdict = NOT_JUDGED[field] if most is None else "yes" if is_good else "NO"
        table.add_row(name, *(f"{value:,.1f}" for value in shown), f"{slope / scale:+.3f}", verdict)
    console.print(table)
    console.print("Memory is judged by its private part (uss).")
    failed = [name for name in counts if name.endswith("ended early")]
    for name in failed:
        console.print(f"[red]{name}[/]")
    return is_level and not failed


def draw(samples: Sequence[Sample], path: Path) -> Path:
    """Draw memory, files and threads over time."""
    import matplotlib as mpl  # noqa: PLC0415 - a second to load, needed at the very end

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, axes = plt.subplots(2, 1, sharex=True, figsize=(9, 6))
    minutes = [sample.seconds / 60 for sample in samples]
    for field in ("rss", "uss"):
        values = [getattr(sample, field) / MEGABYTE for sample in samples]
        axes[0].plot(minutes, values, label=f"{field}, MB")
    for field in ("files", "threads"):
        axes[1].plot(minutes, [getattr(sample, field) for sample in samples], label=field)
    for axis in axes:
        axis.set_ylim(bottom=0)
        axis.legend()
    axes[1].set_xlabel("minutes")
    figure.savefig(path, dpi=100, bbox_inches="tight")
    plt.close(figure)
    return path

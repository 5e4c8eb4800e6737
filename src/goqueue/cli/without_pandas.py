"""Arrow without pandas: a broker has no use for it.

Where pandas is installed, as it is beside Spark, Arrow loads it when it first meets a list or an
array: 40 MB, and for up to a second nobody is answered.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class WithoutPandas(MetaPathFinder):
    """Finds everything but pandas."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Refuse pandas as if it were not installed."""
        del path, target
        if fullname == "pandas":
            raise ImportError("a broker works without pandas", name=fullname)
        return None


def leave_out_pandas() -> None:
    """Let this process be one without pandas, unless it is there already."""
    sys.meta_path.insert(0, WithoutPandas())

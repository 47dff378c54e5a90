"""Runs the load generator with one load after another, within a budget."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from knee.data.foreign import Result
from knee.data.outputs import SearchFolder
from knee.find.search import Spent
from knee.generators.runner import LATE_S, Runner

_SCOUT_SHARE = 0.2
"""Length of a scout, as a share of a run's."""


@dataclass
class Generator(Runner):
    """Runs a load generator within a budget, and keeps what it printed.

    seconds  length of a run
    results  the finished runs without scouts, in their order
    """

    folder: SearchFolder
    seconds: int
    budget_s: float
    remedy: str = field(default="add --least with a multiple of the threads", kw_only=True)
    results: list[Result] = field(default_factory=list, kw_only=True)
    _began_s: float = field(default_factory=time.monotonic, kw_only=True)
    _beyond_s: float = field(default=0.0, kw_only=True)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the search began."""
        return time.monotonic() - self._began_s

    def run(self, clients: int, is_scout: bool) -> Result:
        """Run the generator with a load. Raises Spent if the budget does not suffice, and like :meth:`Runner.once`."""
        seconds = max(1, round(_SCOUT_SHARE * self.seconds)) if is_scout else self.seconds
        began_s = self.elapsed_s
        if began_s + seconds + self._beyond_s > self.budget_s:
            raise Spent
        # The last run may exceed the budget by its own length.
        limit_s = seconds + min(seconds + LATE_S, self.budget_s - began_s)
        name = f"c{clients}"
        result = self.once(clients, seconds, self.folder.unfinished_paths(name), limit_s, is_scout=is_scout)
        self._beyond_s = max(0.0, self.elapsed_s - began_s - seconds)
        output = Path(result.source)
        if is_scout:
            return replace(result, source=str(self.folder.keep_scout(output, name)))
        repetition = 1 + sum(Path(one.source).name.startswith(f"{name}-") for one in self.results)
        kept = self.folder.keep(output, name, f"{name}-r{repetition}", result.usage)
        self.results.append(replace(result, source=str(kept)))
        return self.results[-1]

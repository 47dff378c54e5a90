"""Results of the analyses of one measurement, as data; the terminal text and the report render them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from knee.data.measurements import Measurements
from knee.factorial import Findings as Effects
from knee.fit import Outlooks, outlooks
from knee.laws import LawReport
from knee.verdict.arrivals import Arrivals
from knee.verdict.beside import Beside, beside
from knee.verdict.bottleneck import Bottleneck
from knee.verdict.configuration import Verdict
from knee.verdict.crossing import Crossing
from knee.verdict.details import Details
from knee.verdict.health import HealthWarning
from knee.verdict.knee import Obstacle
from knee.verdict.levels import Levels
from knee.verdict.limits import MODELS_MAX
from knee.verdict.naming import Naming
from knee.verdict.peak import Peak
from knee.verdict.thresholds import Threshold


@dataclass(frozen=True)
class Provenance:
    """The origin of the numbers of a run folder.

    experiment  the experiment file's text; None if the folder has none
    manifest    versions, machine, seed and commands
    points      number of points with a finished run; `runs` is the number of these runs
    seconds     length of a run, with `warmup_s` and `cooldown_s`
    middlewares, stores
                the numbers of middlewares and stores that occur in the points
    """

    experiment: str | None
    manifest: Mapping[str, Any]
    points: int
    runs: int
    seconds: int
    warmup_s: int
    cooldown_s: int
    middlewares: tuple[int, ...]
    stores: tuple[int, ...]


@dataclass(frozen=True)
class Unexplained:
    """A response without a factorial analysis, because it is `constant` or for the given reason. `response` is None if
    the reason applies to all responses.
    """

    response: str | None
    constant: bool = False
    reason: str = ""


@dataclass(frozen=True, eq=False)
class Findings:
    """The results of all analyses.

    verdicts     knee and bottleneck of each configuration
    arrivals     an entry per combination of the factors other than the arrival rate; empty in a closed loop
    laws         checks of the operational laws
    effects      an entry per response with a factorial analysis; `unexplained` has one per response without; both are
                 empty if fewer than two factors vary
    levels       measurements at the levels of the only factor; None if several factors vary, or only the load
    peak         the largest throughput in a closed loop; None if fewer than two factors vary
    crossing     where the response times of the only two lines cross; None if they do not
    thresholds   limits of the experiment file, and the points that miss them; empty for a table
    warnings     reasons to distrust the numbers
    utilizations, cpu_shares
                 see :mod:`knee.data.utilization`
    details      results that need a run folder; None for a table, as is `provenance`
    others       factors that distinguish configurations
    stations     measurements of a run folder's stations, for the laws; None for a table
    level        confidence level of every interval
    """

    name: str
    question: str
    verdicts: tuple[Verdict, ...]
    arrivals: tuple[Arrivals, ...]
    laws: LawReport
    effects: tuple[Effects, ...]
    unexplained: tuple[Unexplained, ...]
    levels: Levels | None
    peak: Peak | None
    crossing: Crossing | None
    thresholds: tuple[Threshold, ...]
    warnings: tuple[HealthWarning, ...]
    measurements: Measurements
    utilizations: pl.DataFrame
    cpu_shares: pl.DataFrame
    naming: Naming
    details: Details | None
    provenance: Provenance | None
    others: tuple[str, ...]
    stations: pl.DataFrame | None
    level: float

    @cached_property
    def outlooks(self) -> Outlooks:
        """The models of at most MODELS_MAX configurations with their predictions, fitted at first access."""
        return outlooks(self.observations, self.others, self.stations, configurations_max=MODELS_MAX, level=self.level)

    @cached_property
    def beside(self) -> tuple[Beside, ...]:
        return beside(self.outlooks, self.observations, self.level)

    @property
    def observations(self) -> pl.DataFrame:
        """One row per point and repetition (:mod:`knee.data.observations`)."""
        return self.measurements.table

    @property
    def misses(self) -> bool:
        """Whether a point misses a limit of the experiment file."""
        return any(threshold.of("misses") for threshold in self.thresholds)

    @property
    def has_common_obstacle(self) -> bool:
        """Whether all of several configurations lack a knee for the same reason."""
        knees = [verdict.knee for verdict in self.verdicts]
        if len(knees) < 2 or any(knee.clients for knee in knees):
            return False
        return len({(k.obstacle, len(k.levels) if k.obstacle == Obstacle("few levels") else 0) for k in knees}) == 1

    @property
    def common_bottleneck(self) -> Bottleneck | None:
        """The bottleneck verdict that several configurations share, if it names no resource; otherwise None."""
        found = [verdict.bottleneck for verdict in self.verdicts]
        if len(found) < 2 or found[0].names or any(other != found[0] for other in found[1:]):
            return None
        return found[0]

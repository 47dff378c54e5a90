"""The numbers of clients of an experiment that leaves them open (`load.clients = "auto"`).

Scouts are short runs of the experiment's own system, without repetition. For each combination of the other factors,
they double the clients until throughput flattens. They only choose the levels, and count as no measurements.
"""

from __future__ import annotations

import math
import random
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise, product

import polars as pl

from knee.data import Dataset, RunFolder
from knee.data.foreign import Result, read
from knee.data.observations import observations
from knee.data.outputs import Outputs, output_name
from knee.errors import KneeError, MeasurementsError, ProcessError, ProgramError, SpecError, StorageError
from knee.find.knees import KneeTarget, load_at_knee
from knee.find.search import Runs, Search, SharesError
from knee.generators.lab import CommandLab
from knee.generators.runner import why_no_answers
from knee.lab.deploy.deployment import Progress
from knee.lab.hosts import Host
from knee.lab.hosts.local import LocalHost
from knee.lab.run import Lab
from knee.spec import Level, Measure, Spec
from knee.spec.design import Run
from knee.spec.tables import CLIENTS
from knee.stats.intervals import counted, number
from knee.storage import writing

LEVELS_MAX = 8
"""Most numbers of clients of the grid."""
_COMBINATIONS_MAX = 4
"""Of more combinations of the other factors, only some get scouts."""
_CLIENTS_MAX = 10_000
_SHARE, _SECONDS_MIN = 5, 2
"""A scout lasts a fifth of a measurement, but no less than this time."""
_LIGHT = 1 / 8
"""The smallest level in multiples of the knee: fewer clients send few requests, so their throughput scatters."""
_GAP = 2.5
"""Levels that are further apart get levels between them."""


class ScoutTarget(KneeTarget):
    """A knee that the scouts enclose with and without the largest load: a scout may be slow by chance, and no later run
    adds a level."""

    def is_enclosed(self, scouts: Runs) -> bool:
        before = {load: results for load, results in scouts.items() if load < max(scouts)}
        return super().is_enclosed(scouts) and super().is_enclosed(before)


class Scouts:
    """Runs scouts, and chooses the levels of the clients.

    done     columns with an entry for each scout: clients and other levels, throughput (requests/s), response time (ms)
    reasons  the estimated knee of each combination, and the limits of the scouts, in words
    """

    def __init__(self, spec: Spec, seed: int, folder: RunFolder, host: Host, report: Callable[[str], None]) -> None:
        self._spec = spec.model_copy(update={"measure": _shortened(spec)})
        self._folder = RunFolder(folder.path / "scouts")
        self._seed, self._host, self._report = seed, host, report
        self._made = 0
        self.done: dict[str, list[Level | None]] = {}
        self.reasons: list[str] = []

    @property
    def seconds(self) -> int:
        """Length of a scout."""
        return self._spec.measure.seconds

    def levels(self) -> list[int]:
        """The levels that enclose the knees of all combinations. Raises ProcessError if the fewest clients fail, and
        SpecError from :func:`joint_levels`."""
        with writing(self._folder.path):
            if self._folder.path.exists():
                shutil.rmtree(self._folder.path)
            self._folder.path.mkdir()
        (least,) = self._spec.factors[CLIENTS]
        searches, found = list[Search](), set[int]()
        target = ScoutTarget(precision=0.05)
        scouted, unscouted = combinations(self._spec)
        for others in scouted:
            measure = partial(self._measure, others)
            search = Search(target, measure, self._report, random.Random(0), int(least), _CLIENTS_MAX)
            search.scout()
            searches.append(search)
            found.update(levels_of(search))
            at = load_at_knee(search.scouts) if target.is_enclosed(search.scouts) else None
            knee = "no knee" if at is None else f"a knee near {number(at, 2)} clients"
            self.reasons.append(f"{knee}{f' at {_named(others)}' if others else ''}")
        for search in searches:
            search.scout(max(found))
        if any(search.has_failed for search in searches):
            most = counted(min(search.most for search in searches), "client")
            self.reasons.append(f"failures with more than {most}")
        if unscouted:
            self.reasons.append(f"{counted(unscouted, 'other combination')} had no scouts")
        return joint_levels(found, searches)

    def _measure(self, others: Mapping[str, Level], clients: int, _: bool) -> Result:
        levels = {**others, CLIENTS: clients}
        run = Run(self._made, 1, levels, self._spec.at(levels))
        self._made += 1
        result = self._run_command(run) if self._spec.base.system.load.is_foreign else self._run(run)
        time = "" if result.response_ms is None else f"  {number(result.response_ms)} ms"
        self._report(f"scout  {_named(levels)}  {number(result.throughput, 4)} requests/s{time}")
        for name, value in {**levels, "throughput": result.throughput, "response_ms": result.response_ms}.items():
            self.done.setdefault(name, []).append(float(f"{value:.4g}") if isinstance(value, float) else value)
        return result

    def _run(self, run: Run) -> Result:
        tally = Lab(self._spec, self._seed, self._folder, self._host, Progress()).make([run], lambda *_: None)
        for _, reason in tally.failed:
            raise ProcessError(f"scout with {_named(run.levels)}: {reason}")
        table = observations(Dataset(self._folder.path, self._spec, {}))
        row = table.row(by_predicate=pl.col("point") == run.point, named=True)
        result = Result(
            "knee-load",
            row["throughput"],
            row["response_ms"],
            clients=run.configuration.clients * row["pipeline"],
            rest_ms=row["think_ms"],
            requests=round(row["throughput"] * row["observed_s"]),
            errors=row["errors"] or 0,
        )
        if (why := why_no_answers(result)) is not None:
            raise ProcessError(f"scout with {_named(run.levels)}: {why}; look at {self._folder.path}")
        return result

    def _run_command(self, run: Run) -> Result:
        assert isinstance(self._host, LocalHost), "the experiment file was checked"
        try:
            return CommandLab(self._spec, self._folder, self._host, Progress(), lambda _: None).scout(run)
        except (ProcessError, ProgramError, SpecError, StorageError):
            raise
        except KneeError as error:
            # Each scout starts its system anew: more clients may fail for the same reason, but fewer may work.
            ran = self._clients_of(run)
            raise ProcessError(str(error)) if ran is None else SharesError(str(error), ran) from None

    def _clients_of(self, run: Run) -> int | None:
        """The number of clients that ran, if it differs from the command's; None for another failure."""
        output, *_ = Outputs(self._folder.path).unfinished_paths(output_name(run))
        with suppress(MeasurementsError):
            results, _ = read([output])
            return next((result.clients for result in results if result.declared not in (None, result.clients)), None)
        return None


def _shortened(spec: Spec) -> Measure:
    """The length of a scout; warm-up and cool-down shrink in proportion."""
    measure = spec.measure
    seconds = min(measure.seconds, max(_SECONDS_MIN, math.ceil(measure.seconds / _SHARE)))
    trims = {name: getattr(measure, name) * seconds // measure.seconds for name in ("warmup_s", "cooldown_s")}
    return measure.model_copy(update={"seconds": seconds, **trims})


def combinations(spec: Spec) -> tuple[list[dict[str, Level]], int]:
    """The combinations of the other factors that get scouts, and how many get none. Texts have no order, so each is
    in a combination. Of a factor's numbers, only the first and the last are."""
    factors = {name: levels for name, levels in spec.factors.items() if name != CLIENTS}
    every = [dict(zip(factors, levels, strict=True)) for levels in product(*factors.values())]
    if len(every) <= _COMBINATIONS_MAX:
        return every, 0
    texts = {name: levels for name, levels in factors.items() if any(isinstance(level, str) for level in levels)}
    count = max((2, *map(len, texts.values())))
    chosen = [
        {
            name: levels[place % len(levels)] if name in texts else levels[-(place % 2)]
            for name, levels in factors.items()
        }
        for place in range(count)
    ]
    return chosen, len(every) - len(chosen)


def levels_of(search: Search) -> list[int]:
    """The loads around the knee of a search's scouts, none below _LIGHT of it, with further ones in wide gaps."""
    lightest = _LIGHT * (load_at_knee(search.scouts) or 0.0)
    loads = sorted(max(load, lightest) for load in search.target.loads(search.scouts))
    for low, high in pairwise(tuple(loads)):
        steps = math.ceil(math.log(high / low, _GAP))
        loads += [low * (high / low) ** (step / steps) for step in range(1, steps)]
    return thinned(search.rounded(loads))


def joint_levels(found: Iterable[int], searches: Sequence[Search]) -> list[int]:
    """The levels that the searches found, rounded to multiples of every search's fewest clients, and within every
    search's limit. Raises SpecError if there are none."""
    least, most = math.lcm(*(search.least for search in searches)), min(search.most for search in searches)
    if least > most:
        cause = f"the combinations need multiples of {least}, and fail with more than {counted(most, 'client')}"
        raise SpecError(f"{CLIENTS}: {cause}; make an experiment for each")
    return thinned({least * min(max(1, round(load / least)), most // least) for load in found})


def thinned(found: Iterable[int]) -> list[int]:
    """At most LEVELS_MAX levels, with the ends: those with the closest neighbours are left out."""
    levels = sorted(found)
    while len(levels) > LEVELS_MAX:
        ratios = [above / below for below, above in zip(levels, levels[2:], strict=False)]
        del levels[1 + ratios.index(min(ratios))]
    return levels


def _named(levels: Mapping[str, Level]) -> str:
    return "  ".join(f"{name}={level}" for name, level in levels.items())

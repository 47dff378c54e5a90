"""Applies every analysis to a run folder or to a table, once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import polars as pl

from knee.data.measurements import Measurements, configuration
from knee.errors import DesignError
from knee.factorial import Findings as Effects
from knee.factorial import analyse as analyse_effects
from knee.fit.layered import LayeredSystem
from knee.laws import TOLERANCE, laws_of_measurements, laws_of_run
from knee.laws.tables import stations
from knee.stats.intervals import LEVEL
from knee.verdict import health
from knee.verdict.arrivals import Arrivals, arrivals
from knee.verdict.configuration import verdict_of, with_demands
from knee.verdict.crossing import crossing
from knee.verdict.details import details_of_run
from knee.verdict.evidence import evidence_of_run, evidence_of_table
from knee.verdict.findings import Findings, Provenance, Unexplained
from knee.verdict.levels import Level, levels
from knee.verdict.limits import explaining
from knee.verdict.naming import Naming
from knee.verdict.peak import peak
from knee.verdict.thresholds import Threshold, thresholds

if TYPE_CHECKING:
    from knee.data import Dataset

EXPLAINED = ("throughput", "response_ms")
"""The responses that a factorial analysis explains by default."""

VERDICTS_MAX = 64
"""Largest number of configurations with a knee analysis."""


def analyse(
    source: Dataset | Measurements, *, level: float = LEVEL, tolerance: float = TOLERANCE, seed: int = 0
) -> Findings:
    """Apply every analysis to a run folder or to a table.

    If an analysis lacks columns or points, its finding holds the reason instead.

    Parameters
    ----------
    level
        Confidence level of every interval.
    tolerance
        An operational law holds if the measurements deviate from it by at most this share.
    seed
        Seed of the bootstrap for the knee's interval.

    Raises KneeError if a table or a histogram of the run folder cannot be read.
    """
    by_station = None
    systems: list[LayeredSystem] = []
    if isinstance(source, Measurements):
        evidence = evidence_of_table(source)
        others = configuration(source) if "clients" in source.table.columns else []
        others += [name for name in ("request_type",) if name in source.factors]
        laws = laws_of_measurements(source, tolerance=tolerance, level=level)
    else:
        evidence = evidence_of_run(source)
        others = configuration(source)
        by_station = stations(source)
        laws = laws_of_run(source, by_station, tolerance=tolerance, level=level)
        systems = explaining(source, others, level, seed)
    measurements = evidence.measurements
    closed = measurements.table.filter(pl.col("think_ms").is_not_null())
    opened = measurements.table.filter(pl.col("think_ms").is_null())
    every = [*others, *(name for name in measurements.factors if name not in others)]
    combinations = [*_combinations(closed, others), *_combinations(opened, every)]
    covered = combinations[:VERDICTS_MAX]
    itself = evidence.limits.filter(~pl.col("waited"))["point"].to_list()
    rates = arrivals(
        pl.concat([measurements.table.clear(), *(rows for _, rows in covered)]), measurements.factors, itself, level
    )
    verdicts = tuple(
        with_demands(verdict_of(evidence, factors, rows, rates, systems, level, seed), laws)
        for factors, rows in covered
    )
    naming = Naming(verdicts, rates, others, measurements.table)
    warnings: list[health.HealthWarning] = []
    details = provenance = None
    limits: tuple[Threshold, ...] = ()
    if not isinstance(source, Measurements):
        details = details_of_run(source, measurements.table, naming, level)
        provenance = _provenance(source)
        limits = thresholds(source, measurements.table, level)
        warnings += health.warnings_of_run(source, evidence)
    effects, unexplained = _explain(measurements, level)
    return Findings(
        name=evidence.name,
        question=evidence.question,
        verdicts=verdicts,
        arrivals=rates,
        laws=laws,
        effects=effects,
        unexplained=unexplained,
        levels=levels(measurements.table, measurements.factors, _keep_up(rates), level),
        peak=peak(measurements.table, measurements.factors, level),
        crossing=crossing(measurements.table, naming, level, seed),
        thresholds=limits,
        warnings=(*warnings, *health.left_out(combinations, len(covered))),
        measurements=measurements,
        utilizations=evidence.utilizations,
        cpu_shares=evidence.cpu_shares,
        naming=naming,
        details=details,
        provenance=provenance,
        others=tuple(others),
        stations=by_station,
        level=level,
    )


def _provenance(dataset: Dataset) -> Provenance | None:
    done = dataset.points.filter(pl.col("status") == "done").sort("start_unix_s")
    first = done.row(0, named=True) if done.height else dict.fromkeys(("seconds", "warmup_s", "cooldown_s"), 0)
    middlewares, stores = (tuple(done[name].drop_nulls().unique().sort()) for name in ("middlewares", "stores"))
    return Provenance(
        experiment=dataset.experiment_text,
        manifest=dict(dataset.manifest),
        points=done["point"].n_unique(),
        runs=done.height,
        seconds=first["seconds"],
        warmup_s=first["warmup_s"],
        cooldown_s=first["cooldown_s"],
        middlewares=middlewares,
        stores=stores,
    )


def _combinations(table: pl.DataFrame, others: Sequence[str]) -> list[tuple[dict[str, Level], pl.DataFrame]]:
    if table.is_empty():
        return []
    others = [name for name in others if not table[name].is_null().all()]
    if not others:
        return [({}, table)]
    return [
        (dict(zip(others, levels, strict=True)), rows)
        for levels, rows in table.sort(others).group_by(others, maintain_order=True)
    ]


def _keep_up(rates: Sequence[Arrivals]) -> dict[int, bool | None]:
    """Whether throughput follows the arrival rate, by point with a measured throughput; None if unknown."""
    return {point: found.keeps_up(point) for found in rates if found.measured for point in found.rates}


def _explain(measurements: Measurements, level: float) -> tuple[tuple[Effects, ...], tuple[Unexplained, ...]]:
    """The effects of the factors on each response, and the reasons for responses without effects."""
    if len(measurements.factors) < 2:
        return (), ()
    if measurements.table["think_ms"].null_count() not in (0, measurements.table.height):
        return (), (Unexplained(None),)
    order = "run_order" if "run_order" in measurements.table.columns else None
    explained, not_explained = [], []
    for response in [name for name in measurements.responses if name in EXPLAINED] or measurements.responses:
        try:
            found = analyse_effects(measurements.table, measurements.factors, response, level=level, run_order=order)
        except DesignError as error:
            why = "; ".join(line.removesuffix(".") for line in str(error).splitlines())
            not_explained.append(Unexplained(response, reason=why))
            continue
        if found.analysis.total:
            explained.append(found)
        else:
            not_explained.append(Unexplained(response, constant=True))
    return tuple(explained), tuple(not_explained)

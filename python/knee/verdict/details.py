"""Details that only a run folder has: operations, outcomes of reads, distributions, and time series of every run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from knee.data.trim import RUN
from knee.spec import Configuration
from knee.verdict.balance import Balance, balances, uncounted
from knee.verdict.ceilings import SyncBound, sync_bound
from knee.verdict.clusters import Clusters
from knee.verdict.distributions import densities, merged, percentiles
from knee.verdict.drift import Drift, drifts
from knee.verdict.failures import Failures, failures
from knee.verdict.naming import Naming
from knee.verdict.operations import Operation, apart_from_mix, operations
from knee.verdict.outcomes import Outcome, clusters, distribution, outcomes, reads
from knee.verdict.timeline import (
    LogGrowth,
    load_per_second,
    log_growth,
    operations_per_second,
    resources_per_point,
    resources_per_second,
    store_per_second,
)
from knee.verdict.views import View, throughput_views, views

if TYPE_CHECKING:
    from knee.data import Dataset

_ITEMS = {"queue": "messages", "nbd": "blocks"}
"""The unit of a request, by protocol."""


@dataclass(frozen=True, eq=False)
class Details:
    """Details of the points that the verdicts cover; a mapping's keys are points unless stated otherwise.

    views          by configuration label, throughput in the clients' and in the server's view; empty if the stores do
                   not report arrival times
    operations     by operation's name; `items` is the unit of a request ("keys", "messages" or "blocks")
    apart_from_mix each point's configuration without the mix of operations
    balances       requests of each store, if there are several behind middlewares
    uncounted      number of runs with several stores that lack these requests, and of all with several
    outcomes       response times of each outcome of reads; empty if clients do not report outcomes
    clusters       clusters in all reads' response times; `outcome_shares` is the distribution of each outcome
    percentiles, densities
                   of response times, see :mod:`knee.verdict.distributions`
    per_second     throughput and response time, second by second, of every run
    operations_per_second, cores_per_second, stores_per_second
                   time series of the first finished repetition of each point
    logs           growth of the stores' logs in these repetitions, if a store has a log
    drifts         change of throughput from the first half of a run to the second
    resources      per point and process
    failures       requests that failed
    sync_bound     bound of the throughput by the disk's syncs, if stores sync every commit
    """

    views: Mapping[str, tuple[View, ...]]
    operations: Mapping[int, Mapping[str, Operation]]
    items: str
    apart_from_mix: Mapping[int, Configuration]
    balances: Mapping[int, Balance]
    uncounted: tuple[int, int]
    outcomes: Mapping[int, tuple[Outcome, ...]]
    clusters: Mapping[int, Clusters]
    outcome_shares: pl.DataFrame
    percentiles: pl.DataFrame
    densities: pl.DataFrame
    per_second: pl.DataFrame
    operations_per_second: pl.DataFrame
    cores_per_second: pl.DataFrame
    stores_per_second: pl.DataFrame
    logs: Mapping[int, LogGrowth]
    drifts: Mapping[int, Drift]
    resources: pl.DataFrame
    failures: Failures
    sync_bound: SyncBound | None


def details_of_run(dataset: Dataset, observations: pl.DataFrame, naming: Naming, level: float) -> Details:
    """The details of a run folder; `observations` are its own."""
    histograms = merged(dataset)
    points = [point for point, _ in naming.points]
    found_operations = operations(histograms, observations, dataset, level)
    found_reads = {key: one for key, one in reads(histograms).items() if key[0] in naming.load}
    found_outcomes = outcomes(found_reads, level)
    both_views = throughput_views(dataset, observations)
    stores = _of_one_run(store_per_second(dataset), dataset, points)
    return Details(
        views={
            verdict.label: views(both_views.filter(pl.col("point").is_in(verdict.points)), level)
            for verdict in naming.verdicts
        },
        operations={point: found_operations[point] for point in points if point in found_operations},
        items=_ITEMS.get(dataset.spec.base.workload.protocol, "keys"),
        apart_from_mix=apart_from_mix(dataset),
        balances=balances(dataset, points, level),
        uncounted=uncounted(dataset, points),
        outcomes=found_outcomes,
        clusters={point: clusters(found_reads, point) for point in points if point in found_outcomes},
        outcome_shares=distribution(found_reads),
        percentiles=percentiles(histograms),
        densities=densities(histograms),
        per_second=load_per_second(dataset).filter(pl.col("point").is_in(points)),
        operations_per_second=_of_one_run(operations_per_second(dataset), dataset, points),
        cores_per_second=_of_one_run(resources_per_second(dataset), dataset, points),
        stores_per_second=stores,
        logs={
            point: grown
            for point in points
            if (grown := log_growth(stores.filter(pl.col("point") == point))) is not None
        },
        drifts=drifts(dataset, points, level),
        resources=resources_per_point(dataset),
        failures=failures(dataset),
        sync_bound=sync_bound(dataset, observations),
    )


def _of_one_run(seconds: pl.DataFrame, dataset: Dataset, points: list[int]) -> pl.DataFrame:
    """Each point's first finished repetition."""
    done = dataset.points.filter((pl.col("status") == "done") & pl.col("point").is_in(points))
    first = done.group_by("point").agg(pl.col("repetition").min())
    return seconds.join(first, on=RUN, how="semi", maintain_order="left")

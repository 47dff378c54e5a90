"""Knee for programs and notebooks: the answers of a run folder or a CSV as objects. :func:`knee.load` begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from knee import fit, verdict
from knee.answers import predict as answers
from knee.answers.predict import Prediction
from knee.data import Dataset, csv, measurements
from knee.data.measurements import Measurements
from knee.data.outputs import table_of
from knee.errors import DatasetError, FitError, KneeError
from knee.laws import LawReport
from knee.report.drawing import Drawing, drawing
from knee.stats.intervals import LEVEL
from knee.verdict import Findings
from knee.verdict.bottleneck import Bottleneck
from knee.verdict.configuration import Verdict
from knee.verdict.knee import Knee


def load(path: str | Path, names: Mapping[str, str] | None = None) -> Run:
    """The measurements at a path.

    Parameters
    ----------
    path
        A run folder, the folder of `knee find`, or a CSV with a row per observation.
    names
        Known names of the CSV's columns, by their own names.

    Raises
    ------
    KneeError
        If the folder has no complete run, or the CSV cannot be read.
    """
    path = table_of(Path(path))
    if not path.is_dir():
        return Run(csv.read(path, [f"{theirs}={ours}" for theirs, ours in (names or {}).items()]))
    dataset = Dataset.open(path)
    if (why := dataset.why_empty) is not None:
        raise DatasetError(f"{path}: {why}")
    return Run(dataset)


@dataclass(frozen=True, eq=False)
class Run:
    """Measurements with their findings, which are computed at first use. As text, it is the printed answer of
    `knee diagnose`.

    A configuration is a combination of the factors other than the clients. It has a label, such as
    `middleware.workers = 8`; the label is empty if only the clients varied.
    """

    source: Dataset | Measurements

    @cached_property
    def findings(self) -> Findings:
        """The results of all analyses."""
        return verdict.analyse(self.source)

    @property
    def observations(self) -> pl.DataFrame:
        """One row per point and repetition (:mod:`knee.data.observations`); times in ms, rates in requests/s."""
        return self.findings.observations

    @property
    def knees(self) -> dict[str, Knee]:
        """The knee of each configuration, by label."""
        return {each.label: each.knee for each in self.findings.verdicts}

    @property
    def knee(self) -> Knee:
        """The knee of the only configuration; its `status` says what the interval `clients` means. Raises KneeError if
        there are several."""
        return self._verdict(None).knee

    @property
    def bottlenecks(self) -> dict[str, Bottleneck]:
        """The bottleneck of each configuration, by label."""
        return {each.label: each.bottleneck for each in self.findings.verdicts}

    @property
    def bottleneck(self) -> Bottleneck:
        """The bottleneck of the only configuration. Raises KneeError if there are several."""
        return self._verdict(None).bottleneck

    @property
    def laws(self) -> LawReport:
        """The checks of the operational laws."""
        return self.findings.laws

    def predict(self, settings: Mapping[str, Any] | None = None, /, **more: Any) -> Prediction:
        """As :meth:`predictions`, for the only prediction. Raises KneeError if there are several."""
        found = self.predictions(settings, **more)
        if len(found) > 1:
            raise KneeError(f"predict: there are {len(found)} predictions; use predictions()")
        return found[0]

    def predictions(
        self, settings: Mapping[str, Any] | None = None, /, *, level: float = LEVEL, seed: int = 0, **more: Any
    ) -> tuple[Prediction, ...]:
        """Predictions for each configuration and each combination of settings, as of `knee predict`.

        Parameters
        ----------
        settings, more
            Values by name, such as `clients=500, workers=[4, 8]` or `{"middleware.threads": 2}`.
        level
            Confidence level of the intervals for one further run.
        seed
            Seed of the resampling.

        Raises
        ------
        FitError
            If no model can predict them.
        """
        asked = {**(settings or {}), **more}
        if not asked:
            raise FitError("predict: needs a setting, such as clients=500")
        source, why = self.source, ""
        if isinstance(source, Dataset) and fit.needs_layers(asked, source):
            try:
                others = measurements.configuration(source)
                systems = fit.layered_systems(source, others, asked, level=level, seed=seed)
                found = fit.layered_forecasts(systems, asked)
            except FitError as error:
                why = str(error)
            else:
                return tuple(one for label, _, each in found for one in answers.of_layered(label, asked, each))
        if any(isinstance(value, list) for value in asked.values()):
            raise FitError(why or "predict: expected one value, not a list: a table has no processor times")
        try:
            return tuple(
                answers.fitted(system, asked, system.forecast(scenario, seed=seed))
                for system, scenario in answers.systems(source, asked, level, seed)
                if scenario is not None
            )
        except FitError as error:
            raise FitError(why or str(error)) from None

    def plot(self, configuration: str | None = None) -> Drawing:
        """Throughput and response time against clients, with the knee. Raises KneeError without a curve, and if there
        are several configurations without a choice of one by its label."""
        return drawing(self._verdict(configuration).knee)

    def __str__(self) -> str:
        return verdict.render_text(self.findings)

    def _verdict(self, label: str | None) -> Verdict:
        found: Sequence[Verdict] = [each for each in self.findings.verdicts if label is None or each.label == label]
        if len(found) != 1:
            labels = " or ".join(repr(each.label) for each in self.findings.verdicts)
            raise KneeError(f"expected one configuration of {labels}; use knees, bottlenecks or plot(LABEL)")
        return found[0]

"""Layered predictions of other numbers of workers, held back from the fit and measured in the same run.

    python -m bench.predict [RUN]

Without RUN, it measures the quickstart with 1, 2, 4 and 8 workers, in random order: a machine whose speed changes then
changes it for all. The fit sees the runs with one worker only.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from knee.data import Dataset
from knee.data.observations import observations
from knee.fit.demands import demands_of, with_demands
from knee.fit.layered import layered_system, setup_of

SETTINGS = ("middleware.workers=[1,2,4,8]", "load.clients=[8,16,32,64,128,256]", "measure.order=random")


def measured() -> Path:
    """A new run folder."""
    folder = Path(tempfile.mkdtemp())
    options = [word for setting in SETTINGS for word in ("--set", setting)]
    command = [sys.executable, "-m", "knee", "run", "quickstart", "--no-report", "--runs-dir", str(folder), *options]
    subprocess.run(command, check=True)
    (run,) = (folder / "quickstart").iterdir()
    return run


def main(arguments: list[str]) -> None:
    """Print each held-back point beside its prediction, and the errors over all of them."""
    run = Path(arguments[0]) if arguments else measured()
    dataset = Dataset.open(run)
    data = demands_of(with_demands(dataset, observations(dataset)))
    system = layered_system(data.take(data.slots == 1), level=0.95, seed=0)
    print("| workers | clients | predicted requests/s | measured | error | predicted ms | measured | held |")
    print("|--:|--:|--:|--:|--:|--:|--:|--:|")
    errors, held = [], []
    for point in np.unique(data.point[data.slots > 1]):
        rows = np.flatnonzero(data.point == point)
        setup = setup_of(data, rows)
        found = system.forecast(setup)
        x, r = 1000 * data.throughput[rows], data.response[rows]
        low, high = found.throughput.low or 0.0, found.throughput.high or np.inf
        inside = (x >= low) & (x <= high)
        errors.append((found.throughput.estimate / x.mean() - 1, found.response_ms.estimate / r.mean() - 1))
        held += inside.tolist()
        print(
            f"| {setup.slots} | {setup.customers:g} | {found.throughput.estimate:,.0f} ({low:,.0f} to {high:,.0f}) | "
            f"{x.mean():,.0f} ({x.min():,.0f} to {x.max():,.0f}) | {errors[-1][0]:+.0%} | "
            f"{found.response_ms.estimate:.2f} | {r.mean():.2f} | {int(inside.sum())} of {len(rows)} |"
        )
    (x_error, r_error), (x_worst, r_worst) = np.median(np.abs(errors), axis=0), np.max(np.abs(errors), axis=0)
    print(
        f"\nThroughput: median error {x_error:.1%}, worst {x_worst:.0%}. Response time: median {r_error:.1%}, worst "
        f"{r_worst:.0%}. The 95 % intervals hold {sum(held)} of {len(held)} runs."
    )
    print(f"Run folder: {run}")


if __name__ == "__main__":
    main(sys.argv[1:])

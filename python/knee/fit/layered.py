"""A layered model from measured demands: what a request takes of each tier, and of the delays between them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from knee.fit.measured import TIERS, Measured
from knee.queueing.layered import Layered, Stage, Tier, shared
from knee.stats.intervals import Floats

HOST = "host"


@dataclass(frozen=True, eq=False)
class LayeredFit:
    """Parameters of a layered model.

    laws         of each tier, processor time of a request in ms: work, and a wake-up's price
    inside       delay in ms and stretch of the stage in which a slot is held
    outside      the same of the rest
    share_out    of the middleware's processor time, the share outside of the slot
    """

    laws: Floats
    inside: tuple[float, float]
    outside: tuple[float, float]
    share_out: float
    threads: tuple[int, ...]
    cores: float

    def network(self, think_ms: float, pools: int, slots: int | None) -> Layered:
        threads = list(self.threads)
        tiers = [
            Tier(name, HOST, int(count), float(work), float(wakeup))
            for name, count, (work, wakeup) in zip(TIERS, threads, self.laws, strict=True)
        ]
        outside = Stage({"load": 1.0, "middleware": self.share_out}, *self.outside)
        inside = Stage({"middleware": 1 - self.share_out, "store": 1.0}, *self.inside)
        return Layered({HOST: self.cores}, tiers, outside, inside, think_ms, pools, slots)


def fit_layered(data: Measured) -> LayeredFit:
    threads = data.threads[0].astype(np.int64)
    used = data.throughput[:, np.newaxis] * data.cpu / threads
    active, speed, idle = settle(used, threads, data.cores)
    asleep = (1 - active) * idle
    ones = np.ones(len(used))
    laws = np.array(
        [
            nnls(np.stack([ones, asleep[:, i]], axis=1) / data.cpu[:, i, np.newaxis], ones)[0]
            for i in range(len(TIERS))
        ]
    )
    laws[:, 0] = np.maximum(laws[:, 0], 1e-6)
    light = data.throughput == data.throughput.min()
    share_out = float(np.clip(np.mean(data.reply[light] / data.cpu[light, 1]), 0.1, 0.6))
    slots = data.slots * data.middlewares

    def residence(shares: list[float], there: Floats) -> Floats:
        others = 1 - 1 / np.maximum(1, np.minimum(there, data.customers))
        gap = np.maximum(speed - used * others[:, np.newaxis], 1e-3)
        return np.asarray((np.array(shares) * data.cpu / gap).sum(axis=1))

    def stage(shares: list[float], there: Floats, times: Floats) -> tuple[float, float]:
        terms = np.stack([ones, residence(shares, there)], axis=1)
        delay, stretch = nnls(terms / times[:, np.newaxis], ones)[0]
        return float(delay), float(stretch)

    return LayeredFit(
        laws,
        stage([0, 1 - share_out, 1], slots, data.inside),
        stage([1, share_out, 0], np.full(len(used), np.inf), data.outside),
        share_out,
        tuple(threads.tolist()),
        data.cores,
    )


def settle(used: Floats, threads: Floats, cores: float) -> tuple[Floats, Floats, Floats]:
    """Probability that a thread is active, its speed, and that of an idle core, of threads that use so much."""
    active = np.minimum(used, 0.999)
    hosts = [HOST] * used.shape[1]
    for _ in range(200):
        speed, idle = shared(active, threads.astype(np.int64), hosts, np.full(used.shape[1], cores))
        now = np.minimum(used / speed, 0.999)
        change = float(np.abs(now - active).max())
        active = (active + now) / 2
        if change < 1e-9:
            break
    return active, speed, idle

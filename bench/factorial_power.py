"""False positives, coverage and model choice of the factorial analysis, on seeded designs of known truth.

    python -m bench.factorial_power [DESIGNS]

A null design has no effect: the mean of every cell is 100. `one × 10` has one cell with ten times the noise.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from itertools import product

import numpy as np
import polars as pl

from knee.factorial import analyse_model, design_of
from knee.factorial.box_cox import box_cox
from knee.factorial.design import Design

RATIOS = (2.0, 3.0, 1.5)
NOISE = (0.05, 0.2)
"""Standard deviations of the proportional noise, as shares of each mean."""


def design_with(factors: int, levels: int, repetitions: int) -> Design:
    """A design of cells in standard order."""
    cells = np.array(list(np.ndindex(*[levels] * factors)))[:, ::-1].repeat(repetitions, axis=0)
    names = "abcdef"[:factors]
    table = pl.DataFrame(dict(zip(names, cells.T, strict=True)) | {"y": np.ones(len(cells))})
    return design_of(table, list(names), "y")


def null_rates(design: Design, noisy: float, designs: int, rng: np.random.Generator) -> list[float]:
    """Shares of false effects tested alone, of designs with a significant effect, and of intervals with the truth."""
    sizes = np.where(design.cells == design.counts.size - 1, noisy, 1.0)
    alone = together = covered = terms = 0
    for _ in range(designs):
        found = analyse_model(replace(design, values=100 + sizes * rng.standard_normal(sizes.size)))
        alone += sum(term.probability is not None and term.probability < 0.05 for term in found.terms)
        together += any(term.significant for term in found.terms)
        ends = [term.effects[0].value for term in found.terms]
        covered += sum(one.low is not None and one.high is not None and one.low <= 0 <= one.high for one in ends)
        terms += len(found.terms)
    return [alone / terms, together / designs, covered / terms]


def lenth_rates(design: Design, designs: int, rng: np.random.Generator) -> list[float]:
    """Shares of false effects tested alone and of designs with a significant one, without any effect; then with A and B
    of six standard errors, designs with a false significant effect, and the share of A and B that are significant."""
    alone = together = beside = real = 0
    active = 6 / np.sqrt(design.runs) * (2 * design.levels[:, :2] - 1).sum(axis=1)
    for _ in range(designs):
        noise = 100 + rng.standard_normal(design.runs)
        null = analyse_model(replace(design, values=noise))
        assert null.lenth is not None
        alone += sum(abs(term.q.estimate) > null.lenth.margin for term in null.terms)
        together += any(term.significant for term in null.terms)
        found = {term.name for term in analyse_model(replace(design, values=noise + active)).terms if term.significant}
        beside += bool(found - {"A", "B"})
        real += len(found & {"A", "B"})
    return [alone / designs / (design.runs - 1), together / designs, beside / designs, real / designs / 2]


def choices(design: Design, truth: str, noise: float, designs: int, rng: np.random.Generator) -> Counter[str]:
    """Which model the data fit, for factors that add or multiply, with proportional noise."""
    steps = design.levels * (np.array(RATIOS[: len(design.factors)]) - 1)
    means = 10 * (1 + steps.sum(axis=1) if truth == "additive" else np.prod(1 + steps, axis=1))
    return Counter(
        box_cox(replace(design, values=means * (1 + noise * rng.standard_normal(means.size)))).fit
        for _ in range(designs)
    )


def main() -> None:
    """Print the tables."""
    designs = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    rng = np.random.default_rng(0)
    print("| design | r | noise | alone | any of a design | coverage |\n|---|---|---|---|---|---|")
    for factors, levels in ((2, 2), (3, 2), (2, 3)):
        for repetitions in (2, 3, 5):
            design = design_with(factors, levels, repetitions)
            for noisy, label in ((1.0, "equal"), (10.0, "one × 10")):
                rates = null_rates(design, noisy, designs, rng)
                print(f"| {levels}^{factors} | {repetitions} | {label} | {' | '.join(f'{one:.3f}' for one in rates)} |")
    each = max(designs // 3, 1)
    print("\n| design | r | noise | truth | additive | multiplicative | both | neither |")
    print("|---|---|---|---|---|---|---|---|")
    for factors in (2, 3):
        for repetitions in (2, 3, 5):
            design = design_with(factors, 2, repetitions)
            for noise, truth in product(NOISE, ("additive", "multiplicative")):
                found = choices(design, truth, noise, each, rng)
                shares = " | ".join(
                    f"{found[fit] / each:.2f}" for fit in ("additive", "multiplicative", "either", "neither")
                )
                print(f"| 2^{factors} | {repetitions} | {noise:.0%} | {truth} | {shares} |")
    print("\n| unreplicated | alone | any of a design | any beside A and B | A and B |\n|---|---|---|---|---|")
    for factors in (3, 4, 5, 6):
        rates = lenth_rates(design_with(factors, 2, 1), 30 * designs, rng)
        print(f"| 2^{factors} | {' | '.join(f'{one:.3f}' for one in rates)} |")


if __name__ == "__main__":
    main()

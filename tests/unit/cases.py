"""Test cases as text: the lines of an input, then an arrow before each expectation, whose further lines are indented.

8: 300 303; 16: 250 251
  → Throughput is largest with 8
"""

from __future__ import annotations


def cases(text: str) -> list[tuple[str, list[str]]]:
    """Each input with its expectations."""
    found: list[tuple[str, list[str]]] = []
    for line in text.strip().splitlines():
        if line.startswith("  → "):
            found[-1][1].append(line.removeprefix("  → "))
        elif line.startswith("    "):
            found[-1][1][-1] += f" {line.strip()}"
        elif found and not found[-1][1]:
            found[-1] = (f"{found[-1][0]} {line}", [])
        else:
            found.append((line, []))
    return found


def samples(text: str) -> dict[str, list[float]]:
    """The repetitions at each level of an input `LEVEL: VALUE VALUE; LEVEL: VALUE`."""
    levels = (level.split(":") for level in text.split(";"))
    return {level.strip(): [float(value) for value in values.split()] for level, values in levels}

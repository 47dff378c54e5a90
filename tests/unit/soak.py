"""How much is drawn: a short sample by default, all of it with KNEE_SOAK."""

from __future__ import annotations

import os

SOAK = "KNEE_SOAK" in os.environ


def drawn(examples: int) -> int:
    """So many examples with KNEE_SOAK, a fifth of them otherwise, but ten at least where there are as many."""
    return examples if SOAK else min(examples, max(10, examples // 5))

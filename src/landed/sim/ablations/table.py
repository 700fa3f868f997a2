"""All ablations, in the order in which a reader wants them."""

from __future__ import annotations

from typing import Final

from landed.sim.ablations.breaking import Ablation
from landed.sim.ablations.handling import HANDLING
from landed.sim.ablations.horizons import HORIZONS
from landed.sim.ablations.index import INDEX
from landed.sim.ablations.law import LAW
from landed.sim.ablations.loops import LOOPS

ABLATIONS: Final[tuple[Ablation, ...]] = (*LOOPS, *INDEX, *LAW, *HANDLING, *HORIZONS)

"""Cuts a graph of groups into balanced parts with little flow between them: METIS, through pymetis (extra
`graph`).

Separate from albic.py and cola.py because both cut, ALBIC the sets that grew too large, COLA everything.
"""

from __future__ import annotations

import importlib.util

import numpy as np

from skewless.model.placement import Flows, Ints
from skewless.model.snapshot import Floats

MISSING = "the extra [graph] is not installed (pip install 'skewless[graph]'): the greedy served instead."
STEPS = 10_000  # METIS weighs in whole numbers: the largest weight becomes this one


def installed() -> bool:
    """Whether pymetis can be imported."""
    return importlib.util.find_spec("pymetis") is not None


def cut(members: Ints, flows: Flows, weights: Floats, shares: Floats) -> Ints:
    """The part of each member, from 0; `weights` of the members, and the share of the weight for each part.

    Parts come as METIS gives them: some may be empty, and a heavy member may exceed its part's share.
    """
    count = min(len(shares), len(members))
    if count < 2:
        return np.zeros(len(members), dtype=np.int64)
    import pymetis

    starts, neighbours, rates = _adjacency(members, flows)
    options = pymetis.Options(seed=0)
    _, part = pymetis.part_graph(
        count,
        pymetis.CSRAdjacency(starts, neighbours),
        vweights=_whole(weights),
        eweights=_whole(rates) if len(rates) else None,
        tpwgts=(shares[:count] / shares[:count].sum()).tolist(),
        recursive=False,
        options=options,
    )
    return np.array(part, dtype=np.int64)


def _adjacency(members: Ints, flows: Flows) -> tuple[list[int], list[int], Floats]:
    """Both directions of each flow between members, rows one after another."""
    place = {int(k): i for i, k in enumerate(members.tolist())}
    edges: dict[tuple[int, int], float] = {}
    for source, target, rate in zip(
        flows.sources.tolist(), flows.targets.tolist(), flows.rates.tolist(), strict=True
    ):
        if rate > 0 and source != target and source in place and target in place:
            for edge in ((place[source], place[target]), (place[target], place[source])):
                edges[edge] = edges.get(edge, 0.0) + rate
    ordered = sorted(edges)
    counts = np.bincount(np.array([a for a, _ in ordered], dtype=np.int64), minlength=len(members))
    starts = np.concatenate([[0], np.cumsum(counts)]).tolist()
    return starts, [b for _, b in ordered], np.array([edges[edge] for edge in ordered])


def _whole(weights: Floats) -> list[int]:
    """Weights as whole numbers of at least 1."""
    most = float(weights.max(initial=0.0))
    return [max(1, round(STEPS * weight / most)) if most > 0 else 1 for weight in weights.tolist()]

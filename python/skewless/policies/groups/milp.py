"""The mixed-integer linear program of ALBIC, through HiGHS (extra `milp`).

Madsen, Zhou, Cao: "Integrative Dynamic Reconfiguration in a Parallel Stream Processing Engine" (ICDE 2017),
section III-B1. Separate from greedy.py because it needs a solver, and may be stopped by the clock.

What we changed, and why:
- d, d_u, d_l >= 0: as printed the program is unbounded.
- Constraint (5), mean - d >= 0, is left out: no placement meets it if a group is heavier than twice the mean.
- The mean is not rounded up to a whole point: it would only hide differences below one.
- Constraint (3) holds for the nodes that stay, as the objective has it: a leaving node's load is counted by
  its groups, each of which weighs more than any distance. The node can go when none is left, so loads of zero
  count as well.
- Nodes have capacities; a group of a dead node may go anywhere at no cost.
- Of placements that level alike the one that moves fewer bytes is taken.
- HiGHS starts from the greedy's placement and is stopped in time; the better of the two is taken. A plan is
  the same for the same input unless the clock stopped the solver.
- A program too large for the time is solved for eight nodes at a time (large neighbourhood search, after
  Shaw, CP 1998).
"""

from __future__ import annotations

import importlib.util
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from skewless.model.placement import NOWHERE, Ints, Placement, PlacementLimits, PlacementPlan
from skewless.model.snapshot import Floats
from skewless.policies.groups.greedy import level
from skewless.policies.groups.settle import better, settle

MISSING = "the extra [milp] is not installed (pip install 'skewless[milp]'): the greedy served instead."
TIGHTEN = 1e-4  # w_2 against w_1 = 1: first d, then the two bounds
THRIFT = 1e-6  # of two placements that level alike, the one that moves less
LEVEL_ENOUGH = 5e-4  # of the mean load: a placement proved to be this near the best one ends the search
MOST_COLUMNS = 4000  # with more HiGHS finds little in two seconds: it is asked about a few nodes at a time
NEIGHBOURS, NEIGHBOURS_AT_RANDOM, NEIGHBOURHOOD_SECONDS = 7, 0.01, 0.1
SHARE_OF_TIME = 0.5  # HiGHS looks at its clock between steps, and building the program takes time too


def milp(placement: Placement, limits: PlacementLimits) -> PlacementPlan:
    """Levels as well as the budget allows.

    >>> from skewless.model.placement import Groups, Nodes
    >>> groups = Groups.of(range(5), [30, 25, 20, 15, 10], [1] * 5, nodes=[0] * 5)
    >>> plan = milp(Placement(Nodes.of(["a", "b"]), groups), PlacementLimits())
    >>> plan.distance_before, plan.distance_after
    (50.0, 0.0)
    """
    started = time.perf_counter()
    targets, reasons = solve(placement, limits)
    return settle(placement, limits, targets, started, reasons)


def solve(
    placement: Placement, limits: PlacementLimits, pins: Ints | None = None
) -> tuple[Ints, tuple[str, ...]]:
    """The better of the greedy's placement and the solver's. A group k with pins[k] >= 0 goes there."""
    until = time.perf_counter() + limits.seconds * SHARE_OF_TIME
    start = level(placement, limits, pins)
    if len(placement.nodes.takers) < 2 or placement.mean == 0:
        return start, ()
    if importlib.util.find_spec("highspy") is None:
        return start, (MISSING,)
    if len(start) * len(placement.nodes.takers) > MOST_COLUMNS:
        return _by_neighbourhoods(placement, limits, start, pins, until), ()
    program = Program.of(placement, limits, pins)
    return improved(placement, limits, program, start, until - time.perf_counter()), ()


def improved(
    placement: Placement, limits: PlacementLimits, program: Program, start: Ints, seconds: float
) -> Ints:
    """The better of `start` and what the solver finds from there."""
    found = _run(program, start, seconds)
    if found is None or placement.bytes_moved(found) > limits.max_bytes:
        return start
    over = placement.bytes_moved(start) > limits.max_bytes  # pins and leaving nodes together took too much
    return found if over else better(placement, start, found)


def _by_neighbourhoods(
    placement: Placement, limits: PlacementLimits, start: Ints, pins: Ints | None, until: float
) -> Ints:
    """The same program again and again, for the node farthest from the mean and a few others, drawn by how
    far they are; all other groups stay where the last answer has them."""
    generator, best = np.random.default_rng(0), start
    takers = placement.nodes.takers
    while (seconds := min(until - time.perf_counter(), NEIGHBOURHOOD_SECONDS)) > 0:
        off = np.abs(placement.node_loads(best)[takers] - placement.mean)
        worst = int(off.argmax())
        if off[worst] <= LEVEL_ENOUGH * placement.mean:
            break
        odds = off + NEIGHBOURS_AT_RANDOM * placement.mean
        odds[worst] = 0
        others = generator.choice(len(takers), NEIGHBOURS, replace=False, p=odds / odds.sum())
        among = takers[[worst, *others]]
        fixed = np.where(np.isin(best, among), NOWHERE if pins is None else pins, best)
        best = improved(placement, limits, Program.of(placement, limits, fixed, among), best, seconds)
    return best


@dataclass(frozen=True, eq=False)
class Program:
    """The program as arrays. Column c says that group groups[c] sits on node nodes[c]; d, d_u and d_l are the
    last three columns. Loads are divided by the mean, bytes by the budget."""

    placement: Placement
    groups: Ints
    nodes: Ints
    bytes: Floats  # of each column, as a share of the budget

    @classmethod
    def of(
        cls,
        placement: Placement,
        limits: PlacementLimits,
        pins: Ints | None = None,
        among: Ints | None = None,
    ) -> Program:
        """A group k with pins[k] >= 0 has that one place; all others have the nodes `among`."""
        takers, home = placement.nodes.takers, placement.sources
        groups = np.repeat(np.arange(len(home)), len(takers))
        nodes = np.tile(takers, len(home))
        stays = np.flatnonzero((home >= 0) & placement.nodes.leaving[home])
        groups, nodes = np.concatenate([groups, stays]), np.concatenate([nodes, home[stays]])
        cost = np.where(
            (home[groups] >= 0) & (home[groups] != nodes), placement.groups.state_bytes[groups], 0.0
        )
        if limits.max_bytes > 0:
            share, allowed = cost / limits.max_bytes, cost <= limits.max_bytes
        else:
            share, allowed = np.zeros(len(cost)), cost == 0
        if among is not None:
            allowed &= np.isin(nodes, among)
        if pins is not None:
            allowed = np.where(pins[groups] >= 0, pins[groups] == nodes, allowed)
        return cls(placement, groups[allowed], nodes[allowed], share[allowed])

    @property
    def objective(self) -> Floats:
        """w_1 d - w_2 (d_u + d_l), and for each group left on a leaving node more than d can ever be."""
        stranded = self.placement.nodes.leaving[self.nodes] * (len(self.placement.nodes) + 1.0)
        return np.concatenate([stranded + THRIFT * self.bytes, [1.0, -TIGHTEN, -TIGHTEN]])

    def rows(self) -> tuple[Floats, Floats, Ints, Ints, Floats]:
        """Lower and upper bound of each row; row, column and value of each number in them."""
        places, takers = self.placement, self.placement.nodes.takers
        g, n, columns = len(places.loads), len(takers), np.arange(len(self.groups))
        rank = np.full(len(places.nodes), -1)
        rank[takers] = np.arange(n)
        counted = rank[self.nodes] >= 0
        load = places.loads[self.groups] / places.nodes.capacities[self.nodes] / places.mean
        on, at, weight = columns[counted], rank[self.nodes][counted], load[counted]
        d, d_u, d_l = len(self.groups) + np.arange(3)
        every, ones = np.arange(n), np.ones(n)
        row = [self.groups, np.full(len(columns), g), g + 1 + at, g + 1 + every, g + 1 + every]
        column = [columns, columns, on, np.full(n, d), np.full(n, d_u)]
        value = [np.ones(len(columns)), self.bytes, weight, -ones, ones]
        row += [g + 1 + n + at, g + 1 + n + every, g + 1 + n + every]
        column += [on, np.full(n, d), np.full(n, d_l)]
        value += [weight, ones, -ones]
        lower = np.concatenate([np.ones(g), [-np.inf], np.full(n, -np.inf), ones])
        upper = np.concatenate([np.ones(g), [1.0], ones, np.full(n, np.inf)])
        return lower, upper, np.concatenate(row), np.concatenate(column), np.concatenate(value)

    def columns_of(self, targets: Ints) -> Floats:
        """A placement as values of all columns."""
        chosen = (targets[self.groups] == self.nodes).astype(np.float64)
        distance = self.placement.distance(targets) / self.placement.mean
        return np.concatenate([chosen, [distance, 0.0, 0.0]])

    def targets_of(self, columns: Floats) -> Ints | None:
        """The placement that the columns stand for, if each group has one node."""
        chosen = columns[: len(self.groups)] > 0.5
        if not np.array_equal(np.sort(self.groups[chosen]), np.arange(len(self.placement.loads))):
            return None
        targets = self.placement.sources.copy()
        targets[self.groups[chosen]] = self.nodes[chosen]
        return targets


def lower_bound(placement: Placement, limits: PlacementLimits, seconds: float) -> float:
    """A load distance that no placement within the budget can beat: what HiGHS has proved in this time. For
    the pages of evidence; no node may be leaving."""
    import highspy

    program = Program.of(placement, limits)
    only_d = np.zeros(len(program.groups) + 3)
    only_d[-3] = 1.0
    relaxed = _solver(program, only_d, seconds, whole=False)
    relaxed.run()
    solved = relaxed.getModelStatus() == highspy.HighsModelStatus.kOptimal
    bound = relaxed.getInfo().objective_function_value if solved else 0.0
    whole = _solver(program, only_d, seconds, whole=True)
    whole.run()
    return float(max(0.0, bound, whole.getInfo().mip_dual_bound)) * placement.mean


def _run(program: Program, start: Ints, seconds: float) -> Ints | None:
    import highspy

    if seconds <= 0:
        return None
    solver = _solver(program, program.objective, seconds, whole=True)
    first = highspy.HighsSolution()
    first.col_value = program.columns_of(start).tolist()
    solver.setSolution(first)
    solver.run()
    if solver.getInfo().primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        return None
    return program.targets_of(np.array(solver.getSolution().col_value))


def _solver(program: Program, objective: Floats, seconds: float, *, whole: bool) -> Any:
    import highspy

    solver: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    options = {"output_flag": False, "threads": 1, "time_limit": seconds, "mip_abs_gap": LEVEL_ENOUGH}
    for option, wanted in options.items():
        solver.setOptionValue(option, wanted)
    lower, upper, row, column, value = program.rows()
    order = np.lexsort((row, column))
    columns = len(program.groups) + 3
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = columns, len(lower)
    lp.col_cost_ = objective
    lp.col_lower_ = np.zeros(columns)
    lp.col_upper_ = np.concatenate([np.ones(columns - 3), np.full(3, highspy.kHighsInf)])
    lp.row_lower_, lp.row_upper_ = lower, upper
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_ = np.searchsorted(column[order], np.arange(columns + 1)).astype(np.int32)
    lp.a_matrix_.index_, lp.a_matrix_.value_ = row[order].astype(np.int32), value[order]
    if whole:
        kinds = [highspy.HighsVarType.kInteger] * (columns - 3) + [highspy.HighsVarType.kContinuous] * 3
        lp.integrality_ = kinds
    solver.passModel(lp)
    return solver

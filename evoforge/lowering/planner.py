"""Regions made into loop nests, as the genome says.

A region's passes form one nest unless the genome splits them, or wants the reductions cut into chunks that run in
parallel. Where a map's tensor-sized result is used in several passes, it is computed again in each (inline),
kept in a buffer of one row (row), or kept whole in the workspace (root).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from itertools import groupby, pairwise

from evoforge.errors import UnsupportedError
from evoforge.lowering.chain import Chain, find_chain
from evoforge.lowering.contraction import find_contraction
from evoforge.lowering.domain import Access, Domain, Node
from evoforge.lowering.lanes import NEAR
from evoforge.lowering.nests import Nest, Pass, Plan
from evoforge.lowering.regions import has_a_place, reads_through, regions
from evoforge.lowering.schedule import Schedule

__all__ = ["links", "make_plan"]

_FEW = 8
_MOST_INSIDE = 64
"""Maps that are computed where one is read. In a long loop they would grow with every step, and the work with its
square."""


def make_plan(domain: Domain, schedule: Schedule, threads: int, kept: Set[str] = frozenset()) -> Plan:
    """The nests that `schedule` makes of `domain`. `kept`: what is known to have to be kept whole."""
    promoted = set(kept) | _read_elsewhere(domain, schedule) | _long(domain)
    while True:
        planner = _Planner(domain, schedule, threads, promoted)
        try:
            plan = planner.run()
        except _ReadElsewhere as found:
            if found.tensor in promoted:
                raise UnsupportedError(f"expected {found.tensor} to be kept whole, and no schedule does") from None
            promoted = planner.promoted | {found.tensor}
            continue
        if planner.promoted == promoted:
            return plan
        promoted = planner.promoted


def _read_elsewhere(domain: Domain, schedule: Schedule) -> set[str]:
    """Maps computed where they are read, but read at other places: all that a plan would be made anew for, if many.

    A few are found one after the other, since what is kept for one can serve the next.
    """
    found = {
        (tensor, producer)
        for node in domain.nodes
        for tensor, producer, stands in domain.needs(node)
        if not stands and producer.kind == "map" and domain.tensors[tensor].kind != "out"
    }
    inline = {
        tensor
        for tensor, producer in found
        if not has_a_place(domain, producer) or schedule.placement.get(producer.name, "inline") == "inline"
    }
    return inline if len(inline) > _FEW else set()


def _long(domain: Domain) -> set[str]:
    """What maps write that would hold too many others, each counted from the last that is kept."""
    inside: dict[str, set[str]] = {}
    found: set[str] = set()
    for node in domain.nodes:
        if node.kind != "map":
            continue
        mine = {node.name}.union(*(inside[one.name] for _, one, _ in domain.needs(node) if one.name in inside))
        if len(mine) > _MOST_INSIDE:
            found |= {out for out in node.outputs if out}
            mine = set()
        inside[node.name] = mine
    return found


def links(domain: Domain, plan: Plan) -> Iterator[tuple[Chain, list[Nest]]]:
    """The chains of two regions that follow one another, where nothing else is chained, and their nests."""
    groups = [list(group) for _, group in groupby(plan.nests, key=lambda nest: nest.region)]
    for before, after in pairwise(groups):
        if (chain := _linked(domain, plan.nests, [*before, *after])) is not None:
            yield chain, [*before, *after]


def _linked(domain: Domain, nests: Sequence[Nest], both: Sequence[Nest]) -> Chain | None:
    return find_chain(domain, both, [nest for nest in nests if not any(nest is one for one in both)])


class _ReadElsewhere(Exception):
    """A map is read at other places than where the reader stands: it has to be kept whole."""

    def __init__(self, tensor: str) -> None:
        super().__init__(tensor)
        self.tensor = tensor


class _Planner:
    def __init__(self, domain: Domain, schedule: Schedule, threads: int, promoted: set[str]) -> None:
        self.domain = domain
        self.schedule = schedule
        self.threads = threads
        self.fixed = set(promoted)
        self.promoted = set(promoted)
        self.reads = reads_through(domain, self.fixed)
        self.stored: dict[str, tuple[int, str]] = {}  # tensor → (number of the nest that wrote it, where)
        self.placed: dict[str, str] = {}
        self.reduced_in: dict[str, int] = {}
        self.memory: list[str] = []
        self.buffers: list[str] = []
        self.nests: list[Nest] = []
        self.last_pass: dict[str, Pass] = {}

    def run(self) -> Plan:
        for number, nodes in enumerate(regions(self.domain, self.fixed)):
            self._region(number, nodes)
        for nest in self.nests:
            self._drop_unread(nest)
            _orient(self.domain, nest)
            self._contract(nest)
        # A region whose maps are all computed where they are read has nothing left to do.
        self.nests = [nest for nest in self.nests if any(one.nodes or one.row_maps for one in nest.passes)]
        self._chain()
        return Plan(self.nests, self.memory, self.buffers, self.threads, frozenset(self.fixed))

    def _contract(self, nest: Nest) -> None:
        sums = [node.name for one in nest.passes for node in one.reduces]
        how = next((self.schedule.contract[name] for name in sums if name in self.schedule.contract), "rows")
        found = find_contraction(self.domain, nest) if how != "rows" and self.schedule.vector else None
        if found is not None:
            nest.contraction, nest.packed = found, how
            nest.lane, nest.columns = found.lane, True

    def _chain(self) -> None:
        """Joins the nests of a region to those of the region before it, where the schedule wants it and it can be."""
        linked: list[Nest] = []
        for _, group in groupby(self.nests, key=lambda nest: nest.region):
            mine = list(group)
            if self.schedule.chain.get(str(mine[0].region)) and linked:
                both = [*linked, *mine]
                chain = _linked(self.domain, self.nests, both)
                if chain is not None:
                    for nest in both:
                        nest.chain = chain
                    mine = both
            linked = mine

    def _drop_unread(self, nest: Nest) -> None:
        """Row buffers that no later pass of their nest reads are not kept."""
        for one in nest.passes:
            unread = [
                t for t, how in one.stores if how == "row" and not any(o.reads.get(t) == "row" for o in nest.passes)
            ]
            one.stores = [(t, how) for t, how in one.stores if (t, how) not in [(u, "row") for u in unread]]
            self.buffers = [t for t in self.buffers if t not in unread]

    def _placement(self, node: Node) -> str:
        """inline, row or root of a tensor-sized map; an output that is read again has one too."""
        if node.name not in self.placed:
            self.placed[node.name] = self._place(node)
        return self.placed[node.name]

    def _place(self, node: Node) -> str:
        if node.kind == "map" and self.fixed & set(node.outputs):
            return "root"
        if node.kind != "map" or not has_a_place(self.domain, node):
            return "inline"
        return self.schedule.placement.get(node.name, "inline")

    def _scan(self, number: int, node: Node) -> None:
        rows = tuple(a for a in node.axes if a not in node.reduction)
        one = Pass()
        nest = Nest(rows, [one], region=number)
        self.nests.append(nest)
        self._need_all(nest, one, node, rows, True)
        one.reduces.append(node)
        out = next(o for o in node.outputs if o)
        one.stores.append((out, "memory"))
        self.stored[out] = (len(self.nests) - 1, "memory")
        if self.domain.tensors[out].kind != "out":
            self.memory.append(out)

    def _region(self, number: int, nodes: list[Node]) -> None:
        if nodes[0].kind == "scan":
            self._scan(number, nodes[0])
            return
        rows: tuple[str, ...] = next((node.axes for node in nodes if node.kind == "reduce"), ())
        has_reduce = any(node.kind == "reduce" for node in nodes)
        levels = self._levels(nodes, rows if has_reduce else None)
        count = 1 + max((levels[n.name] for n in nodes if not self._row_level(n, rows, has_reduce)), default=0)
        few = has_reduce and self.domain.numel(rows).first < self.threads
        chunked = has_reduce and (few or self.schedule.reduction == "chunks")
        groups: list[list[int]] = [[0]]
        for boundary in range(1, count):
            if chunked or self.schedule.split.get(f"{number}.{boundary}") == "split":
                groups.append([])
            groups[-1].append(boundary)
        for position, group in enumerate(groups):
            nest = Nest(rows, [Pass() for _ in group], region=number)
            self.nests.append(nest)
            for offset, level in enumerate(group):
                here = [n for n in nodes if levels[n.name] == level and not self._row_level(n, rows, has_reduce)]
                self._fill(nest, nest.passes[offset], here, rows, has_reduce)
                last = offset == len(group) - 1 and position == len(groups) - 1
                for node in nodes:
                    if self._row_level(node, rows, has_reduce) and node.kind == "map":
                        due = (
                            levels[node.name] == level + 1
                            or (last and levels[node.name] > level)
                            or (level == 0 and levels[node.name] == 0)
                        )
                        if due and (self._is_out(node) or self._placement(node) == "root"):
                            self._row_out(nest, nest.passes[offset], node, rows)
            nest.chunked = chunked and nest.reduces
            if not nest.reduces:
                nest.rows = ()

    def _is_out(self, node: Node) -> bool:
        return any(self.domain.tensors[o].kind == "out" for o in node.outputs if o)

    def _row_level(self, node: Node, rows: tuple[str, ...], has_reduce: bool) -> bool:
        return has_reduce and node.kind == "map" and set(node.axes) <= set(rows)

    def _levels(self, nodes: list[Node], rows: tuple[str, ...] | None) -> dict[str, int]:
        inside = {node.name for node in nodes}
        levels: dict[str, int] = {}
        swept: dict[int, frozenset[str]] = {}  # a pass sweeps the same axes for all: a sum would be taken many times
        for node in nodes:
            level = 0
            for access in self.reads[node.name]:
                producer = self.domain.producer(access.tensor)
                if producer is None or producer.name not in inside or producer.name == node.name:
                    continue
                after = producer.kind == "reduce" or self._placement(producer) == "root"
                level = max(level, levels[producer.name] + after)
            inner = self._sweeps(node, rows)
            while inner and swept.setdefault(level, inner) != inner:
                level += 1
            levels[node.name] = level
        return levels

    def _sweeps(self, node: Node, rows: tuple[str, ...] | None) -> frozenset[str]:
        """The axes that a node wants swept inside the rows; none where it is computed wherever it is read."""
        if node.kind == "reduce":
            return frozenset(node.reduction)
        stored = self._is_out(node) or self._placement(node) != "inline"
        return frozenset(node.axes) - frozenset(rows) if rows is not None and stored else frozenset()

    def _fill(self, nest: Nest, one: Pass, here: list[Node], rows: tuple[str, ...], has_reduce: bool) -> None:
        for node in here:
            if node.kind == "reduce":
                self._need_all(nest, one, node, rows, has_reduce)
                one.reduces.append(node)
                self.reduced_in[node.name] = len(self.nests) - 1
                self.last_pass[node.name] = one
                for out in node.outputs:
                    if out and self.domain.tensors[out].kind == "out":
                        one.row_stores.append(out)
                continue
            placed = self._placement(node)
            out = next(o for o in node.outputs if o)
            keep = self.domain.tensors[out].kind == "out"
            if not keep and placed == "inline":
                continue
            self._compute(nest, one, node, rows, has_reduce)
            if keep or placed == "root":
                one.stores.append((out, "memory"))
                self.stored[out] = (len(self.nests) - 1, "memory")
                if not keep:
                    self.memory.append(out)
            if placed == "row":
                one.stores.append((out, "row"))
                self.stored[out] = (len(self.nests) - 1, "row")
                self.buffers.append(out)

    def _compute(self, nest: Nest, one: Pass, node: Node, rows: tuple[str, ...], has_reduce: bool) -> None:
        if node not in one.maps:
            self._need_all(nest, one, node, rows, has_reduce)
            one.maps.append(node)

    def _row_out(self, nest: Nest, one: Pass, node: Node, rows: tuple[str, ...]) -> None:
        if node in one.row_maps:
            return
        self._need_all(nest, one, node, rows, True, after=True)
        one.row_maps.append(node)
        for out in node.outputs:
            if out:
                one.row_stores.append(out)
                self.stored[out] = (len(self.nests) - 1, "memory")
                if self.domain.tensors[out].kind != "out":
                    self.memory.append(out)

    def _need_all(
        self, nest: Nest, one: Pass, node: Node, rows: tuple[str, ...], has_reduce: bool, after: bool = False
    ) -> None:
        for tensor, producer, stands in self.domain.needs(node):
            self._need(nest, one, tensor, producer, rows, has_reduce, after, stands)

    def _need(
        self,
        nest: Nest,
        one: Pass,
        tensor: str,
        producer: Node,
        rows: tuple[str, ...],
        has_reduce: bool,
        after: bool,
        stands: bool,
    ) -> None:
        """`stands`: it is read where it is written, and nowhere else."""
        here = len(self.nests) - 1
        if producer.kind == "scan":
            self._read(one, tensor, "memory")
            return
        if producer.kind == "reduce":
            local = self.reduced_in.get(producer.name) == here and stands
            self._read(one, tensor, "local" if local else "memory")
            if not local:
                self._materialise(producer, tensor)
            return
        elsewhere = tensor in self.fixed and tensor in self.stored and self.stored[tensor][0] != here
        if stands and not elsewhere and self._row_level(producer, rows, has_reduce):
            if not any(producer in earlier.heads or producer in earlier.row_maps for earlier in nest.passes):
                self._need_all(nest, one, producer, rows, has_reduce, after)
                (one.row_maps if after else one.heads).append(producer)
            self._read(one, tensor, "local")
            return
        if producer in one.maps and stands:
            self._read(one, tensor, "local")
            return
        stored = self.stored.get(tensor)
        placed = self._placement(producer)
        reload = stored is not None and (placed != "inline" or not stands)
        if stored is not None and reload:
            if stored[1] == "row" and stored[0] != here:
                self.promoted.add(tensor)
            self._read(one, tensor, stored[1])
            return
        if not stands:
            raise _ReadElsewhere(tensor)
        self._compute(nest, one, producer, rows, has_reduce)
        self._read(one, tensor, "local")

    def _read(self, one: Pass, tensor: str, how: str) -> None:
        """A pass has one value of a tensor: what it computes at its own place is not what lies at another."""
        if one.reads.setdefault(tensor, how) != how and "local" in (how, one.reads[tensor]):
            raise _ReadElsewhere(tensor)
        one.reads[tensor] = how

    def _materialise(self, producer: Node, tensor: str) -> None:
        written = self.last_pass[producer.name]
        if tensor not in written.row_stores:
            written.row_stores.append(tensor)
        if self.domain.tensors[tensor].kind == "tmp" and tensor not in self.memory:
            self.memory.append(tensor)


def _orient(domain: Domain, nest: Nest) -> None:
    """Chooses the lane axis: the one along which most bytes are contiguous, lanes that would be idle not counted.

    Of what lies a few steps apart as many vectors are read for one, and chosen from. What is not contiguous can be
    read in vectors, but not written: no axis is chosen along which results lie apart, if there is another that is long
    enough.
    """
    weight: dict[str, float] = {}
    for one in nest.passes:
        for node in one.nodes:
            written = [] if node.kind == "reduce" else [(node.write, 1 if nest.reduces else 2)]
            for access, times in (*((read, 1) for read in node.reads()), *written):
                for name, size in access.terms or ():
                    step = abs(size.first)
                    if 1 <= step <= NEAR:
                        elements = domain.numel(sorted(access.axes)).first
                        weight[name] = weight.get(name, 0) + times * elements / step
    axes = {a for one in nest.passes for node in one.nodes for a in (*node.axes, *node.reduction)}
    inner = [a for a in axes if a not in nest.rows]

    def worth(name: str) -> float:
        return weight[name] * _used(domain.numel([name]).first, nest.reduces and name not in nest.rows)

    stored = [access for one in nest.passes for access in _stored(domain, one)]

    def together(name: str) -> bool:
        """Whether results are neighbours along an axis, and enough of them."""
        return all(access.step(name) == 1 for access in stored) and _used(domain.numel([name]).first, False) >= 0.5

    ways = sorted(weight)
    if stored:
        ways = [name for name in ways if together(name)] or ways
    best = max(ways, key=worth, default=None)
    if best is None:
        best = sorted(inner)[-1] if inner else (nest.rows[-1] if nest.rows else "")
    nest.lane = best
    nest.columns = best in nest.rows


def _stored(domain: Domain, one: Pass) -> Iterator[Access]:
    """Where a sweep writes to memory."""
    for tensor, how in one.stores:
        producer = domain.producer(tensor)
        if how == "memory" and producer is not None:
            yield producer.write


def _used(extent: int, joined: bool) -> float:
    """The part of a vector's lanes that an axis fills; vectors of eight stand for all of them. Where lanes have to be
    joined in the end, that takes as long as one more."""
    return extent / (-(-extent // 8) * 8 + 8 * joined) if extent else 1.0

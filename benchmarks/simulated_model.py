"""A simulated author of kernels, and the simulated machine that judges them.

What is assumed, once, before anything was measured with it:

- An *approach* is something a kernel can do (streaming stores, a row buffer, …): 28 of them, told by words
  in any text. A kernel is a set of approaches and a cell; nothing is compiled.
- The *machine* (`World`) knows, for every task, what an approach is worth there. Half of the variance of
  that is the same for all tasks (`SHARED`), half is the task's own. Two things are drawn: how often a kernel
  that takes up the approach is correct, and by how much it is faster. An approach also suits one level of one
  axis: it is better in cells of that level and worse elsewhere. Levels differ in how hard they are to reach.
  In another world (`decisive`) a task has a few approaches of its own, drawn for it alone, that make kernels right
  and fast, and all others are equally useless.
- The *model* (`Author`) knows nothing of the machine. Asked for a kernel it takes up one approach (two when
  it starts from nothing): with 70% one that the meta-prompt's text recommends, with 10% one of the
  technique cards that it was shown, else any idea of its own, but none that only the pitfalls name. Its
  hypothesis says which. One reply in twenty is no kernel.
- Asked to rewrite a meta-prompt it reads the briefings and the records that stand in the request, and nothing
  else: what is told as gained and as failed, by the approach that the hypotheses name. It adds what
  gained most and is not recommended yet (in the better briefing's own words where that has it), in place of
  what was tried and is worth less than half of it. One rewriting in five adds an idea of its own, one in ten
  is useless.
- A call costs what its tokens cost: text of the real request, lognormal lengths of replies.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from evoforge.core import Block, Candidate, Cell, Evaluation, Kind, Outcome, Status, WorkloadTiming
from evoforge.llm import ModelSpec, Reply, Request, Usage, prices_of

__all__ = ["APPROACHES", "SHARED", "Author", "Machine", "World", "first_source"]

LEVELS = 4
AXES = 3
SHARED = 0.5
"""Share of the variance of what an approach is worth that is the same for all tasks."""
_GENERAL = 20  # seed of what an approach is worth on every task
_REACHABLE = 0.75  # share of the cells
_FOLLOWS, _CARD = 0.7, 0.1
_USELESS = 0.05
_BAD_REWRITE, _OWN_IDEA, _REWEIGHS = 0.1, 0.2, 0.3
_PLAIN = -2.4  # logit: without good advice about one kernel in ten is right
_CEILING = 1.5  # log2: no kernel is faster
_DECIDES, _IDLE = 2.0, -0.3  # worth of an approach that decides, and of every other, where few do

# name: (how a text names it, a sentence that recommends it)
APPROACHES: Mapping[str, tuple[str, str]] = {
    "amx": (r"\bAMX\b", "Multiply small matrices with AMX tiles."),
    "bf16": (r"bf16|brain float", "Store what is read often as bf16 and widen it in registers."),
    "blocking": (r"outer tile|cache tile|block(?:s|ing)? for the cache", "Cut a cache tile whose data stays close."),
    "dot": (r"dot-product", "Use the dot-product instructions for short sums of small integers."),
    "interchange": (r"interchang|order of memory", "Interchange loops so that the inner one walks contiguous memory."),
    "tails": (r"masked tail|ragged edges|in tails", "Handle the ragged edges by masked tails."),
    "collapse": (r"collapse", "Collapse outer loops so that every thread has work."),
    "online": (r"running forms?\b|online", "Use running forms of a maximum and a sum."),
    "packing": (r"\bpack(?:ed|ing|s)?\b", "Use packed panels, so that the inner loop reads one stream."),
    "reciprocal": (r"reciprocal", "Multiply by a reciprocal taken outside of the loop."),
    "registers": (r"several vectors, or several|register block", "Hold a register block of outputs over the sum."),
    "rowbuffer": (r"private buffer|row buffer|a row in", "Keep a row in a private buffer between passes."),
    "accumulators": (r"accumulators", "Break long sums into several accumulators."),
    "prefetch": (r"prefetch|fetch what comes next", "Prefetch the next rows while the present one is worked on."),
    "static": (r"statically|contiguous range", "Distribute equal work statically."),
    "streaming": (r"non-temporal|streaming stores", "Write large outputs by streaming stores."),
    "transposition": (r"transpos", "Transpose small tiles in registers."),
    "exponential": (r"polynomial|vector exponential", "Evaluate the exponential by a polynomial, vector by vector."),
    "welford": (r"welford|stable form", "Update mean and spread by Welford's form."),
    "recompute": (r"producers again|recomput", "Recompute cheap producers where they are used."),
    "joint": (r"joint state|combine reductions", "Combine reductions over one domain into a joint state."),
    "aliasing": (r"do not overlap|restrict", "Tell the compiler that pointers do not overlap."),
    "materialise": (r"materialise", "Materialise an intermediate that several loops need."),
    "scalar": (r"go scalar|scalar where", "Go scalar where vectors wait for one another."),
    "fma": (r"multiply-add", "Use fused multiply-add."),
    "fewrows": (r"few rows", "Block a few rows per pass."),
    "tilebuffer": (r"buffer of one tile", "Put an intermediate into a buffer of one tile."),
    "padding": (r"powers of two", "Pad rows that are powers of two apart."),
}
_NAMES = tuple(APPROACHES)
_WORDS = {name: re.compile(words, re.I) for name, (words, _) in APPROACHES.items()}
_PARTS = re.compile(r"parts\[\] = \{([\d, ]+)\}")
_LEVEL = re.compile(r"\b(?:tiling|memory|fusion) (\d)")


def named(text: str) -> list[str]:
    """Approaches that a text names, in the order of the table."""
    return [name for name in _NAMES if _WORDS[name].search(text)]


@dataclass(frozen=True)
class Kernel:
    """What a simulated source says: where it wants to land, what is new in it, and what it holds already."""

    start: Cell
    goal: Cell
    new: tuple[int, ...]
    held: tuple[int, ...]
    nonce: int

    @property
    def source(self) -> str:
        flat = [*self.start, *self.goal, len(self.new), *self.new, *self.held, self.nonce]
        text = ", ".join(str(number) for number in flat)
        return (
            '#include "evoforge.h"\n\nextern "C" int evo_run(const evo_call* call) {\n'
            f"    const long parts[] = {{{text}}};\n    return parts[0] < 0;\n}}\n"
        )

    @classmethod
    def read(cls, numbers: str) -> Kernel:
        flat = [int(number) for number in numbers.split(",")]
        count = flat[2 * AXES]
        new = tuple(flat[2 * AXES + 1 : 2 * AXES + 1 + count])
        held = tuple(flat[2 * AXES + 1 + count : -1])
        return cls(tuple(flat[:AXES]), tuple(flat[AXES : 2 * AXES]), new, held, flat[-1])


def first_source() -> str:
    """The plain kernel that every campaign begins with."""
    return Kernel((0, 1, 2), (0, 1, 2), (), (), 1).source


class World:
    """What is true of one task: hidden from model and search.

    `shared`: of the variance of an approach's worth, the part that all tasks have. `decisive`: instead, so many
    approaches of the task's own decide, and nothing else does (0: all are worth a little, more or less).
    """

    def __init__(self, seed: int, shared: float = SHARED, decisive: int = 0) -> None:
        general, own = np.random.default_rng(_GENERAL), np.random.default_rng([seed, 1])
        count = len(_NAMES)
        common, alone = math.sqrt(shared), math.sqrt(1 - shared)
        self._right = common * general.standard_normal(count) + alone * own.standard_normal(count)
        self._faster = common * general.standard_normal(count) + alone * own.standard_normal(count)
        if decisive:
            few = np.random.default_rng([seed, 2]).permutation(count) < decisive
            self._right = self._faster = np.where(few, _DECIDES, _IDLE)
        self._axis = general.integers(AXES, size=count)
        self._level = general.integers(LEVELS, size=count)
        self._hard = 0.6 * own.standard_normal((AXES, LEVELS))
        cells = [(a, b, c) for a in range(LEVELS) for b in range(LEVELS) for c in range(LEVELS)]
        self.reachable = frozenset(cell for cell in cells if cell == (0, 1, 2) or own.random() < _REACHABLE)
        self._base = {cell: -2.3 + 0.4 * float(own.standard_normal()) for cell in cells}
        self._base[0, 1, 2] = -2.3  # the plain kernel is slow, but good enough to begin with
        self._seed = seed

    def _fit(self, approach: int, cell: Cell) -> float:
        return 0.6 if cell[self._axis[approach]] == self._level[approach] else -0.2

    def judge(self, kernel: Kernel, digest: str) -> tuple[Cell, float] | None:
        """(cell, log2 speed-up) of a kernel; None where it is wrong."""
        rng = np.random.default_rng([self._seed, int(digest[:12], 16)])
        goal = kernel.goal
        logit = _PLAIN
        for approach in kernel.new:
            logit += 1.2 * self._right[approach] + self._fit(approach, goal)
        logit -= sum(self._hard[axis][level] for axis, level in enumerate(goal)) * (goal != kernel.start)
        logit -= 0.3 * max(0, len(kernel.held) - 3)  # what does much already breaks easily
        if kernel.new and rng.random() >= 1 / (1 + math.exp(-logit)):
            return None
        cell = goal
        if goal != kernel.start and (goal not in self.reachable or rng.random() < 0.4):
            cell = kernel.start
        elif goal == kernel.start and rng.random() < 0.2:
            near = sorted(c for c in self.reachable if sum(abs(x - y) for x, y in zip(c, goal, strict=True)) == 1)
            cell = near[int(rng.integers(len(near)))] if near else goal
        if cell not in self.reachable:
            cell = (0, 1, 2)
        every = {*kernel.new, *kernel.held}
        height = self._base[cell] + sum(0.45 * (self._faster[a] + self._fit(a, cell)) for a in every)
        return cell, min(height + 0.15 * float(rng.standard_normal()), _CEILING)


class Machine:
    """A campaign's measurer on a `World`."""

    def __init__(self, world: World) -> None:
        self._world = world

    def build_ahead(self, jobs: object) -> None:
        """Nothing is built."""

    def object_hash(self, candidate: Candidate, params: Mapping[str, int]) -> str | None:
        return None

    def trial(self, candidate: Candidate, params: Mapping[str, int], prune_below: float | None) -> Evaluation:
        return self._evaluation(candidate, Kind.TRIAL)

    def confirm(
        self, candidate: Candidate, params: Mapping[str, int], *, both: bool = False, blocks: int = 2
    ) -> Evaluation:
        return self._evaluation(candidate, Kind.BENCH if both else Kind.CONFIRM)

    def race(self, kernels: object, *, limit_s: float) -> list[Evaluation]:
        """Confirmations have no storms here."""
        return []

    def _evaluation(self, candidate: Candidate, kind: Kind) -> Evaluation:
        found = _PARTS.search(candidate.source)
        verdict = self._world.judge(Kernel.read(found[1]), candidate.id) if found else None
        if verdict is None:
            return Evaluation(
                candidate.id, {}, "simulated", "simulated", Status.WRONG, kind,
                reason="output 0 is wrong beyond its tolerance", seconds={"verify": 1.0},
            )  # fmt: skip
        cell, height = verdict
        rng = np.random.default_rng([int(candidate.id[:12], 16), len(str(kind))])
        blocks = tuple(
            Block(process, 2.0 ** (-height + 0.02 * float(rng.standard_normal())), 1.0, 1.0) for process in range(5)
        )
        return Evaluation(
            candidate.id, {}, "simulated", "simulated", Status.CORRECT, kind,
            timings=(WorkloadTiming("default", "eager", blocks),), cell=cell, seconds={"time": 2.0},
        )  # fmt: skip


class Author:
    """A client that answers like a model which follows what it reads, more or less.

    The same question gets the same answer, so the order of calls does not matter.
    """

    def __init__(self, spec: ModelSpec, seed: int) -> None:
        self._prices = prices_of(spec)
        self._spec = spec
        self._seed = seed

    def complete(self, request: Request) -> Reply:
        digest = hashlib.sha256(f"{self._seed} {request.prompt_hash}".encode()).hexdigest()
        rng = np.random.default_rng(int(digest[:16], 16))
        if request.purpose == "evolve":
            text, length = _rewritten(request.user, rng), 500.0
        else:
            text, length = _kernel(request, rng), 1400.0
        written = int(min(length * math.exp(0.4 * rng.standard_normal()), request.max_tokens))
        usage = Usage((len(request.system) + len(request.user)) // 4, 0, written)
        return Reply(text, Outcome.OK, usage, self._prices.usd(usage), 20.0, request.model)


# -- writing kernels ---------------------------------------------------------------------------------


def _kernel(request: Request, rng: np.random.Generator) -> str:
    if rng.random() < _USELESS:
        return "I would first measure the achieved bandwidth of the reference."
    parents = [Kernel.read(numbers) for numbers in _PARTS.findall(_part(request.user, "kernel"))]
    cells = [_cell(line) for line in re.findall(r"(?m)^- cell: (.*)$", _part(request.user, "kernel"))]
    starts = [cell for cell in cells if cell is not None]
    new = _ideas(request, rng, 1 if parents else 2)
    if not parents:
        start = goal = tuple(int(level) for level in rng.integers(LEVELS, size=AXES))
        held: tuple[int, ...] = ()
    else:
        start = starts[0] if starts else parents[0].goal
        asked = _cell(request.user.partition("# What to do")[2]) if request.purpose == "aim" else None
        goal = asked or start
        first = {*parents[0].new, *parents[0].held}
        if len(parents) > 1:
            both = sorted(first | {*parents[1].new, *parents[1].held})
            held = tuple(idea for idea in both if rng.random() < 0.7)
        else:
            held = tuple(sorted(first - set(new)))
    kernel = Kernel(start, goal, new, held, int(rng.integers(1, 2**31)))
    hope = " and ".join(APPROACHES[_NAMES[idea]][1].rstrip(".") for idea in new)
    return f"Hypothesis: {hope}: the bottleneck should give way.\n\n```cpp\n{kernel.source}```\n"


def _part(user: str, about: str) -> str:
    """The section with the kernels to start from; empty where there is none."""
    found = re.search(rf"(?s)^# The {about}s? to start from\n(.*?)(?=^# )", user, re.M)
    return found[1] if found else ""


def _cell(text: str) -> Cell | None:
    levels = [int(level) for level in _LEVEL.findall(text)][:AXES]
    return tuple(levels) if len(levels) == AXES else None


def _ideas(request: Request, rng: np.random.Generator, count: int) -> tuple[int, ...]:
    thinking = request.system.partition("# How to think about this")[2].partition("\n# Task")[0]
    thinking = thinking.partition("\nWhat this briefing favours")[0]  # weights of genes are no advice in words
    sections = re.split(r"(?m)^## ", thinking)
    pitfalls = named("\n".join(part for part in sections if part.startswith("Pitfalls")))
    advised = named("\n".join(part for part in sections if not part.startswith("Pitfalls")))
    shown = named(request.user.partition("\n# Techniques")[2].partition("\n# What to do")[0])
    own = [name for name in _NAMES if name in advised or name not in pitfalls]
    picked: list[int] = []
    while len(picked) < count:
        draw = rng.random()
        source = advised if draw < _FOLLOWS else shown if draw < _FOLLOWS + _CARD else own
        name = (source or own)[int(rng.integers(len(source or own)))]
        if _NAMES.index(name) not in picked:
            picked.append(_NAMES.index(name))
    return tuple(picked)


# -- rewriting meta-prompts --------------------------------------------------------------------------


@dataclass
class _Record:
    gained: float = 0.0
    wins: int = 0
    failures: int = 0

    @property
    def tries(self) -> int:
        return self.wins + self.failures

    @property
    def worth(self) -> float:
        return self.gained / (self.tries + 2)


def _rewritten(user: str, rng: np.random.Generator) -> str:
    if rng.random() < _BAD_REWRITE:
        return "The briefing is sound; I would keep it."
    briefing, _, rest = user.partition("# Its record")
    record_text, _, better = rest.partition("# A briefing that does better")
    record_text += better.partition("# The record of the better one")[2]
    records = _records(record_text.partition("# How to answer")[0])
    bullets = _bullets(briefing)
    theirs = _bullets(better.partition("# The record of the better one")[0])
    present = {name for bullet in bullets for name in named("\n".join(bullet))}
    wanted = sorted(
        (name for name in records if name not in present and records[name].gained > 0),
        key=lambda name: -records[name].worth,
    )
    if rng.random() < _OWN_IDEA:
        unknown = [name for name in _NAMES if name not in present and name not in records]
        wanted[:0] = [unknown[int(rng.integers(len(unknown)))]] if unknown else []
    doubted = [bullet for bullet in bullets if _poor(named("\n".join(bullet)), records, wanted)]
    edits: list[tuple[Sequence[str], Sequence[str]]] = []
    for name in wanted[:2]:
        own = [bullet for bullet in theirs if name in named("\n".join(bullet))]
        line = own[0] if own else [f"- {APPROACHES[name][1]}"]
        if doubted:
            edits.append((doubted.pop(0), line))
        elif len(bullets) < 9 and bullets:
            edits.append((bullets[-1], [*bullets[-1], *line]))
            bullets = bullets[:-1]
    if not edits and len(doubted) > 0 and len(bullets) > 2:
        edits.append((doubted[0], []))
    text = "".join(
        "<<<<<<< SEARCH\n" + "\n".join(old) + "\n=======\n" + "\n".join([*new, ""]) + ">>>>>>> REPLACE\n\n"
        for old, new in edits
    )
    return text + _weights(record_text, rng)


def _records(text: str) -> dict[str, _Record]:
    """By approach: what is told of it as gained and as failed."""
    found: dict[str, _Record] = defaultdict(_Record)
    for line in text.split("\n"):
        hope = line.partition("expected “")[2].partition("”")[0]
        gain = re.search(r", gain ([\d.e+-]+)", line)
        for name in named(hope):
            if line.startswith("- gained:") and gain:
                found[name].gained += float(gain[1])
                found[name].wins += 1
            elif line.startswith("- failed:"):
                found[name].failures += 1
    return found


def _bullets(briefing: str) -> list[list[str]]:
    """The items of the section Strategies, each with its lines."""
    text = briefing.partition("## Strategies\n")[2].partition("\n###")[0]
    items: list[list[str]] = []
    for line in text.split("\n"):
        if line.startswith("- "):
            items.append([line])
        elif line.startswith("  ") and items:
            items[-1].append(line)
    return items


def _poor(names: Sequence[str], records: Mapping[str, _Record], wanted: Sequence[str]) -> bool:
    """Whether all that an item recommends was tried twice or more and is worth less than half of what is wanted."""
    best = max((records[name].worth for name in wanted if name in records), default=0.0)
    return bool(names) and all(
        name in records and records[name].tries > 1 and records[name].worth <= best / 2 for name in names
    )


def _weights(record: str, rng: np.random.Generator) -> str:
    """Now and then the operator that is told to gain gets a greater weight."""
    if rng.random() >= _REWEIGHS:
        return ""
    wins = re.findall(r"(?m)^- gained: (\w+),", record)
    known = [name for name in ("aim", "improve", "invent", "cross") if name in wins]
    if not known:
        return ""
    best = max(known, key=wins.count)
    return f"Weight: operators.{best} -> {rng.choice([1.5, 2.0, 3.0])}\n"

"""Loops of a control-flow graph: a nest of strongly connected components.

A component is a loop; without the edges into its headers (the blocks it is entered by) it falls
apart into the loops inside it. That is the loop nesting forest of Steensgaard (1993); on reducible
graphs these are the natural loops, and jump threading, which makes graphs irreducible, hides none.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["Loops", "find_loops"]

Loops = list[frozenset[int]]


def find_loops(following: Sequence[Sequence[int]]) -> Loops:
    """Every loop as the set of its blocks; `following` gives the successors of each block.

    Where a compiler rotated a nest into one header, the loops of its back edges count one by one.
    """
    found: Loops = []
    before: list[list[int]] = [[] for _ in following]
    for block, nexts in enumerate(following):
        for other in nexts:
            before[other].append(block)
    pending: list[tuple[frozenset[int], frozenset[int]]] = [(frozenset(range(len(following))), frozenset())]
    while pending:
        blocks, headers = pending.pop()
        for component in _components(following, blocks, headers):
            block = next(iter(component))
            if len(component) == 1 and (block in headers or block not in following[block]):
                continue
            entries = frozenset(
                b for b in component if b == 0 or any(p not in component for p in before[b])
            ) or frozenset([min(component)])
            found.append(component)
            if len(entries) == 1:
                found += _sharing(component, next(iter(entries)), before)
            pending.append((component, entries))
    return list(dict.fromkeys(found))


def _sharing(component: frozenset[int], header: int, before: Sequence[Sequence[int]]) -> Loops:
    """Loops inside a loop that have its header; two ways to go on with one loop are none."""
    bodies = []
    for latch in before[header]:
        if latch in component:
            body, stack = {header}, [latch]
            while stack:
                block = stack.pop()
                if block not in body:
                    body.add(block)
                    stack.extend(p for p in before[block] if p in component)
            bodies.append(frozenset(body))
    return [body for body in bodies if body < component] if component in bodies else []


def _components(following: Sequence[Sequence[int]], blocks: frozenset[int], headers: frozenset[int]) -> Loops:
    """Strongly connected components (Tarjan 1972) among `blocks`, ignoring edges into `headers`."""
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    found: Loops = []
    for root in blocks:
        work = [(root, 0)] if root not in order else []
        while work:
            block, at = work.pop()
            if at == 0:
                order[block] = low[block] = len(order)
                stack.append(block)
                on_stack.add(block)
            nexts = [n for n in following[block] if n in blocks and n not in headers]
            for position in range(at, len(nexts)):
                other = nexts[position]
                if other not in order:
                    work += [(block, position + 1), (other, 0)]
                    break
                if other in on_stack:
                    low[block] = min(low[block], order[other])
            else:
                if low[block] == order[block]:
                    members: list[int] = []
                    while not members or members[-1] != block:
                        members.append(stack.pop())
                        on_stack.discard(members[-1])
                    found.append(frozenset(members))
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[block])
    return found

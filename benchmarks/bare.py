"""The engine's ceiling: the same heaps and lists of ints, without anything else.

Each admission takes the head of a queue's heap, tries two flavors of three resources against queue and
cohort, charges both, records the admitted job and puts the queue's next head back: the minimum that any core
in plain Python must do. It has no policy, no events, no reasons, and no journal for a rollback.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush

RESOURCES, FLAVORS, COHORTS = 3, 2, 10


class Node:
    __slots__ = ("free", "parent", "used")

    def __init__(self, parent: Node | None, free: int) -> None:
        self.parent = parent
        self.used = [0] * (RESOURCES * FLAVORS)
        self.free = [free] * (RESOURCES * FLAVORS)


class Admitted:
    __slots__ = ("cells", "job", "queue")

    def __init__(self, job: int, queue: int, cells: tuple[int, ...]) -> None:
        self.job = job
        self.queue = queue
        self.cells = cells


class Bare:
    """`queues` queues of `jobs` jobs each, with quota for all of them."""

    def __init__(self, queues: int, jobs: int) -> None:
        cohorts = [Node(None, 2 * jobs * queues) for _ in range(COHORTS)]
        self.nodes = [Node(cohorts[number % COHORTS], 2 * jobs) for number in range(queues)]
        self.waiting = [deque((at * queues + number) for at in range(jobs)) for number in range(queues)]
        self.heads = [(line.popleft(), number) for number, line in enumerate(self.waiting)]
        heapify(self.heads)
        self.admitted: list[Admitted] = []

    def run(self) -> int:
        """Run it; returns the number of admissions."""
        need = (2, 2, 2)
        while self.heads:
            job, queue = heappop(self.heads)
            node = self.nodes[queue]
            for flavor in range(FLAVORS):
                cells = tuple(flavor * RESOURCES + number for number in range(RESOURCES))
                if all(_fits(node, cell, need[cell % RESOURCES]) for cell in cells):
                    for cell in cells:
                        _charge(node, cell, need[cell % RESOURCES])
                    self.admitted.append(Admitted(job, queue, cells))
                    break
            if line := self.waiting[queue]:
                heappush(self.heads, (line.popleft(), queue))
        return len(self.admitted)


def _fits(node: Node | None, cell: int, amount: int) -> bool:
    while node is not None:
        if node.used[cell] + amount > node.free[cell]:
            return False
        node = node.parent
    return True


def _charge(node: Node | None, cell: int, amount: int) -> None:
    while node is not None:
        node.used[cell] += amount
        node = node.parent

"""Nominal quotas while nodes have less than is promised for them (docs/scheduling.md, M11)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from queuectl.core.model.policy import CapacityShortage
from queuectl.core.model.resources import FlavorResource, Usage
from queuectl.core.quota.tree import QuotaNode, QuotaTree


def promised(tree: QuotaTree) -> Usage:
    """Return the sum of the nominal quotas in all specs, by cell, in base units."""
    found: Counter[FlavorResource] = Counter()
    for node in tree.nodes():
        for cell in node.named:
            found[tree.names[cell]] += node.promised[cell]
    return found


def shares_out(tree: QuotaTree) -> bool:
    """Return whether nominal quotas of any tree may count less than is promised, or do so now."""
    return bool(tree.reduced) or any(map(_reduces, tree.nodes()))


def share_out(tree: QuotaTree, capacity: Mapping[FlavorResource, int]) -> list[QuotaNode]:
    """Let the nominal quotas of all nodes count as `capacity` and the rule of their root say (M11).

    `capacity`: what usable nodes have, in base units, of the cells that nodes limit. Where all trees together
    are promised more of a cell than there is, a nominal quota in a tree with `ProRata` counts as
    floor(nominal * capacity / promised). Depends on nothing but `capacity` and the specs.
    Returns the nodes that changed. Costs the nodes with their cells.
    """
    nodes, total = list(tree.nodes()), promised(tree)
    reducing = {node for node in nodes if _reduces(node)}
    short = {
        cell: (there, total[name])
        for name, there in capacity.items()
        if (cell := tree.cells.get(name)) is not None and there < total.get(name, 0)
    }
    changed: dict[QuotaNode, None] = {}
    reduced: dict[QuotaNode, set[int]] = {}
    for node in nodes:
        root = tree.root(node)
        for cell in node.named:
            counts = node.promised[cell]
            if root in reducing and cell in short:
                there, wanted = short[cell]
                counts = counts * there // wanted
                reduced.setdefault(root, set()).add(cell)
            if node.nominal[cell] != counts:
                tree.set_nominal(node, cell, counts)
                changed[node] = None
    tree.reduced = {root: frozenset(cells) for root, cells in reduced.items()}
    return list(changed)


def _reduces(node: QuotaNode) -> bool:
    return node.parent is None and node.shortage is CapacityShortage.PRO_RATA

"""Amounts of resources: exact integers in base units.

Base units are milli-cpu for `cpu`, bytes for `memory` and `ephemeral-storage`, and a count (devices, pods)
for every other resource. One amount fits a Postgres bigint. Sums are Python ints without a limit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from queuectl.core.model.values import value

CPU: Final = "cpu"
PODS: Final = "pods"
MAX_AMOUNT: Final = 2**63 - 1
"""Largest single amount in base units (rule H5). A larger amount is rejected."""

MAX_QUANTITY_LENGTH: Final = 64
"""Longest quantity that is parsed, in characters. The canonical form of the API server is far shorter."""

_MAX_EXPONENT: Final = 40
_MAX_BITS: Final = 128
"""A longer integer is not converted to text: the conversion takes quadratic time."""
_QUANTITY: Final = re.compile(
    r"([+-]?)([0-9]*)(?:\.([0-9]*))?(?:(Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E)|[eE]([+-]?[0-9]+))?"
)
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


class FlavorResource(NamedTuple):
    """A cell: the pair (flavor, resource) that quota is counted in, such as (`a100`, `nvidia.com/gpu`)."""

    flavor: str
    resource: str

    def __str__(self) -> str:
        return f"{self.flavor}/{self.resource}"


Amounts = tuple[tuple[str, int], ...]
"""(resource, amount in base units) pairs, sorted by resource, without zero amounts."""

Usage = dict[FlavorResource, int]
"""Amount in base units per cell."""


class BadQuantity(ValueError):
    """The text is not a Kubernetes quantity."""


class QuantityOutOfRange(BadQuantity):
    """The quantity is larger than MAX_AMOUNT base units, or longer than MAX_QUANTITY_LENGTH characters."""


def parse_quantity(text: str | int | float, resource: str, *, exact: bool = False) -> int:
    """Return the amount of `resource` in base units. A fraction is rounded up (H5), as in Kubernetes.

    The cost is microseconds for every input: length and exponent are bounded before any arithmetic.

    Raises:
        BadQuantity: `text` is not a quantity; if `exact`, also if it has a fraction of a base unit.
        QuantityOutOfRange: `text` is too long or too large.
    """
    if isinstance(text, int) and text.bit_length() > _MAX_BITS:
        raise QuantityOutOfRange(
            f"a number of {text.bit_length()} bits is larger than {MAX_AMOUNT} base units"
        )
    source = str(text)
    if len(source) > MAX_QUANTITY_LENGTH:
        raise QuantityOutOfRange(
            f"quantity {source[:20]}… of {len(source)} characters: at most {MAX_QUANTITY_LENGTH}"
        )
    match = _QUANTITY.fullmatch(source)
    if match is None or not (match[2] or match[3]):
        raise BadQuantity(f"{source!r} is not a quantity")
    sign, whole, fraction, suffix, exponent = match.groups(default="")
    digits = int(whole + fraction or "0")
    if digits == 0:
        return 0
    power = int(exponent) if exponent else _DECIMAL.get(suffix, 0)
    power += (3 if resource == CPU else 0) - len(fraction)
    if power > _MAX_EXPONENT:
        raise QuantityOutOfRange(f"quantity {source} is larger than {MAX_AMOUNT} base units")
    # Below this power, every number of MAX_QUANTITY_LENGTH digits is less than one unit.
    power = max(power, -(MAX_QUANTITY_LENGTH + _MAX_EXPONENT))
    shifted = digits << _BINARY.get(suffix, 0)
    if exact and power < 0 and shifted % int(10**-power):
        unit = "1m" if resource == CPU else "1"
        raise BadQuantity(f"{source} is no multiple of {unit}, the unit in which {resource} is counted")
    amount = shifted * int(10**power) if power >= 0 else -(-shifted // int(10**-power))
    if amount > MAX_AMOUNT:
        raise QuantityOutOfRange(f"quantity {source} is larger than {MAX_AMOUNT} base units")
    return -amount if sign == "-" else amount


def format_amount(resource: str, amount: int) -> str:
    """Return `amount` base units in Kubernetes notation: `1500m` cpu, `64Gi` memory, `8` GPUs."""
    if resource == CPU:
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    if resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-"):
        for suffix, shift in reversed(_BINARY.items()):
            if amount and amount % (1 << shift) == 0:
                return f"{amount >> shift}{suffix}"
    return str(amount)


def amounts(values: Mapping[str, int] | Iterable[tuple[str, int]]) -> Amounts:
    """Return `values` as Amounts: sorted by resource, without zero amounts."""
    return tuple(sorted((name, value) for name, value in dict(values).items() if value))


Listed = tuple[tuple[str, int], ...]
"""As Amounts, but with zero amounts: a request of 0 is a request."""


class Role(StrEnum):
    CONTAINER = "Container"
    SIDECAR = "Sidecar"  # an init container that runs as long as the pod
    INIT = "Init"


@value(frozen=True, slots=True)
class Container:
    """A container of a pod, as the API server completes it: a limit without a request is a request."""

    name: str
    requests: Listed
    limits: Listed = ()
    role: Role = Role.CONTAINER


@value(frozen=True, slots=True, kw_only=True, weakref_slot=True)
class PodResources:
    """The resources of one pod of a podset."""

    containers: tuple[Container, ...]
    """Init containers last, each kind in its order."""
    requests: Listed = ()
    """Of the pod itself, instead of those of its containers."""
    limits: Listed = ()
    overhead: Listed = ()
    deadline: bool = False
    """It has activeDeadlineSeconds, which ResourceQuotas with scope Terminating count."""
    priority_class: str | None = None
    """Name in its spec."""


def total_requests(pod: PodResources) -> dict[str, int]:
    """Return the requests of the pod without its overhead."""
    return _total(pod.containers, lambda one: one.requests) | dict(pod.requests)


def total_limits(pod: PodResources) -> dict[str, int]:
    """Return the limits of the pod without its overhead."""
    return _total(pod.containers, lambda one: one.limits) | dict(pod.limits)


def total_limits_with_overhead(pod: PodResources) -> dict[str, int]:
    """Return the limits of the pod, with the overhead of those that are not 0."""
    overhead, total = dict(pod.overhead), total_limits(pod)
    return {name: amount and amount + overhead.get(name, 0) for name, amount in total.items()}


def requested(pod: PodResources) -> Amounts:
    """Return what the scheduler counts for the pod: its requests and its overhead."""
    total = total_requests(pod)
    _add(total, pod.overhead)
    return amounts(total)


def pod_level_requests(
    containers: Iterable[Container], requests: dict[str, int], limits: dict[str, int]
) -> Listed:
    """Return the requests of the pod itself with the API server's defaults, which depend on its limits."""
    if not limits:
        return tuple(sorted(requests.items()))
    of_containers = _total(containers, lambda one: one.requests)
    # Hugepages cannot be overcommitted: the pod's limit counts, whatever its containers request.
    found = {name: amount for name, amount in of_containers.items() if name in (CPU, "memory")}
    return tuple(sorted((limits | found | requests).items()))


def _total(containers: Iterable[Container], of: Callable[[Container], Listed]) -> dict[str, int]:
    """Containers are summed; init containers run one after another, with the sidecars started before them."""
    total: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for one in containers:
        match one.role:
            case Role.CONTAINER:
                _add(total, of(one))
            case Role.SIDECAR:
                _add(total, of(one))
                _add(sidecars, of(one))
                _raise(peak, sidecars)
            case Role.INIT:
                beside = dict(of(one))
                _add(beside, sidecars.items())
                _raise(peak, beside)
    _raise(total, peak)
    return total


def by_resource(cells: Iterable[tuple[FlavorResource, int]]) -> dict[str, int]:
    """Add up what all flavors have of each resource."""
    total: dict[str, int] = {}
    _add(total, ((resource, amount) for (_, resource), amount in cells))
    return total


def _add(total: dict[str, int], more: Iterable[tuple[str, int]]) -> None:
    for name, amount in more:
        total[name] = total.get(name, 0) + amount


def _raise(total: dict[str, int], floor: dict[str, int]) -> None:
    for name, amount in floor.items():
        total[name] = max(total.get(name, 0), amount)


@value(frozen=True, slots=True, kw_only=True)
class Transformation:
    """One resource, charged as other resources."""

    input: str
    replace: bool = False
    """The input itself is not charged (strategy `Replace`)."""
    multiply_by: str | None = None
    """A resource whose requested amount multiplies the outputs, if it is requested."""
    outputs: tuple[tuple[str, int], ...] = ()
    """(resource, amount in base units for one core, byte or device of the input) pairs."""


@value(frozen=True, slots=True, kw_only=True)
class ResourceForms:
    """Section `scheduling.resources` of the component configuration."""

    excluded_prefixes: tuple[str, ...] = ()
    """A resource whose name starts with one of them is not charged."""
    transformations: tuple[Transformation, ...] = ()
    """At most one for each input."""
    device_classes: tuple[tuple[str, str], ...] = ()
    """(DeviceClass, resource that its devices are charged as) pairs, each class once."""
    ignore_uncovered: bool = False
    """A resource that the ClusterQueue does not cover is not charged. False: its workload is not admitted."""


NO_FORMS = ResourceForms()
_MILLI = 1000
_FRACTION = _MILLI * _MILLI
"""Outputs are summed up in millionths of a base unit, because both factors may be milli-cpu."""


class Charging:
    """The charge of one pod. The same for controller, simulator and everything that reads the ledger."""

    def __init__(self, forms: ResourceForms = NO_FORMS) -> None:
        self._excluded = forms.excluded_prefixes
        self._by_input = {one.input: one for one in forms.transformations}
        self.changes = bool(self._excluded or self._by_input)
        """Anything is charged in another form than it is requested in."""

    def of(self, requests: Amounts) -> Amounts:
        """Return what is charged for `requests`, which have everything that the pod requests.

        Transformations read what is requested, not the outputs of others. A sum with a fraction of a base
        unit is rounded up (H5), one above MAX_AMOUNT is cut to it.
        """
        if not self.changes:
            return requests
        kept = {name: amount for name, amount in requests if not name.startswith(self._excluded)}
        total = {name: amount * _FRACTION for name, amount in kept.items() if not self._replaced(name)}
        for name in kept.keys() & self._by_input.keys():
            rule = self._by_input[name]
            times = _thousandths(name, kept[name])
            by = rule.multiply_by
            times *= _thousandths(by, kept[by]) if by is not None and by in kept else _MILLI
            for output, factor in rule.outputs:
                total[output] = total.get(output, 0) + factor * times
        return amounts({name: min(-(-sum_ // _FRACTION), MAX_AMOUNT) for name, sum_ in total.items()})

    def _replaced(self, name: str) -> bool:
        rule = self._by_input.get(name)
        return rule is not None and rule.replace


def _thousandths(resource: str, amount: int) -> int:
    """Return an amount in thousandths of a core, byte or device."""
    return amount if resource == CPU else amount * _MILLI

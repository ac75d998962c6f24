"""From what one pod requests to what it is charged: excluded resources and transformations (H8, H9).

Amounts stay whole: a part of a GPU is charged in a unit that divides all of them. With milli-units seven
slices of 1/7 (143 each) would not fit into one GPU.
"""

from __future__ import annotations

from queuectl.core.model.resources import CPU, MAX_AMOUNT, Amounts, amounts
from queuectl.core.model.values import value


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


NO_FORMS = ResourceForms()
_MILLI = 1000
_FRACTION = _MILLI * _MILLI
"""Outputs are summed up in millionths of a base unit, because both factors may be milli-cpu."""


class Charging:
    """The charge of one pod. The same for controller, simulator and everything that reads the ledger."""

    def __init__(self, forms: ResourceForms = NO_FORMS) -> None:
        self._excluded = forms.excluded_prefixes
        self._by_input = {one.input: one for one in forms.transformations}

    def __bool__(self) -> bool:
        """Whether anything is charged in another form than it is requested in."""
        return bool(self._excluded or self._by_input)

    def of(self, requests: Amounts) -> Amounts:
        """Return what is charged for `requests`, which have everything that the pod requests.

        Transformations read what is requested, not the outputs of others. A sum with a fraction of a base
        unit is rounded up (H5), one above MAX_AMOUNT is cut to it.
        """
        if not self:
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

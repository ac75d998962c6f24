"""Admission policies: those that are stored with a binding are evaluated on every write.

Read are `matchConstraints` with `resourceRules`, `objectSelector` and `namespaceSelector`, the same in
`matchResources` of bindings, `matchConditions`, `variables`, `validations` of bindings that deny, apply
configurations of `mutations`, and parameters.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from queuectl.core.model.policy import LabelSelector, Requirement
from queuectl.core.model.selectors import selects
from queuectl.sandbox.kubernetes.identities import UserInfo
from queuectl.sandbox.kubernetes.patches import merge
from queuectl.sandbox.kubernetes.policy_expressions import (
    ExpressionError,
    as_map,
    evaluate,
    evaluation_values,
    with_variables,
)
from queuectl.sandbox.kubernetes.resources import NAMESPACES, Catalog, ServedKind
from queuectl.sandbox.kubernetes.store import ObjectStore
from queuectl.sandbox.kubernetes.wire import Json, StatusError

_GROUP = "admissionregistration.k8s.io"
_CODES = {"Unauthorized": 401, "Forbidden": 403, "RequestEntityTooLarge": 413, "Invalid": 422}
_CACHED_SPECS = 256
_CACHED_REQUESTS = 1_024


class AdmissionRequest(NamedTuple):
    """A write that is not stored yet: `old` None creates, `new` None deletes."""

    kind: ServedKind
    old: Json | None
    new: Json | None
    user: UserInfo
    subresource: str = ""

    @property
    def operation(self) -> str:
        return "CREATE" if self.old is None else "DELETE" if self.new is None else "UPDATE"

    @property
    def metadata(self) -> Json:
        metadata: Json = (self.new or self.old or {})["metadata"]
        return metadata

    def values(self, params: Json | None) -> Any:
        """What an expression reads."""
        kind = self.kind
        version = {"group": kind.group, "version": kind.version}
        request = {
            "operation": self.operation,
            "kind": {**version, "kind": kind.kind},
            "resource": {**version, "resource": kind.plural},
            **({"subResource": self.subresource} if self.subresource else {}),
            "name": self.metadata["name"],
            "namespace": self.metadata.get("namespace", ""),
            "userInfo": {"username": self.user.name, "groups": list(self.user.groups)},
        }
        return evaluation_values(self.new, self.old, request, params, self.user)


class _Validation(NamedTuple):
    expression: str
    reason: str
    fixed_message: str
    message_expression: str | None

    @classmethod
    def of(cls, validation: Json, variables: Mapping[str, str]) -> _Validation:
        expression, message = validation["expression"], validation.get("messageExpression")
        return cls(
            with_variables(expression, variables),
            validation.get("reason", "Invalid"),
            validation.get("message") or f"failed expression: {expression}",
            message and with_variables(message, variables),
        )

    def message(self, values: Any) -> str:
        """Raises ExpressionError."""
        return (
            str(evaluate(self.message_expression, values)) if self.message_expression else self.fixed_message
        )


class _Evaluation:
    """The expressions of one request. A condition that several policies have is evaluated once."""

    def __init__(self, request: AdmissionRequest) -> None:
        self._request = request
        self._values: Any = None
        self._conditions: dict[str, bool] = {}

    def values(self, params: Json | None) -> Any:
        if params is not None:
            return self._request.values(params)
        if self._values is None:
            self._values = self._request.values(None)
        return self._values

    def meet(self, conditions: Iterable[str], values: Any) -> bool:
        """Whether all are true; `values`: of `values`. Raises ExpressionError if one has no value and none
        is false."""
        unknown: ExpressionError | None = None
        for condition in conditions:
            try:
                if not self._meets(condition, values):
                    return False
            except ExpressionError as error:
                unknown = error
        if unknown is not None:
            raise unknown
        return True

    def _meets(self, condition: str, values: Any) -> bool:
        if values is not self._values:
            return evaluate(condition, values) is True
        if condition not in self._conditions:
            self._conditions[condition] = evaluate(condition, values) is True
        return self._conditions[condition]


class _Matching:
    """What `matchConstraints` of a policy or `matchResources` of a binding select."""

    def __init__(self, constraints: Json | None) -> None:
        constraints = constraints or {}
        self._rules: list[Json] | None = constraints.get("resourceRules")
        self._objects = _selector(constraints.get("objectSelector"))
        self._namespaces = _selector(constraints.get("namespaceSelector"))

    def includes(self, request: AdmissionRequest) -> bool:
        """Whether its rules name the kind, operation and subresource of the request, or it has none."""
        return self._rules is None or any(_includes(rule, request) for rule in self._rules)

    def selects(self, labels: Iterable[Mapping[str, str]], namespace: Mapping[str, str]) -> bool:
        """Whether its selectors select an object that has these labels before or after the request;
        `namespace`: the labels of its namespace."""
        return selects(self._namespaces, namespace) and any(
            selects(self._objects, of_object) for of_object in labels
        )


class AdmissionPolicy:
    """A policy by its spec."""

    def __init__(self, spec: Json) -> None:
        self.fails = spec.get("failurePolicy") != "Ignore"
        """Whether a request is denied if an expression has no value."""
        self.param_kind: Json | None = spec.get("paramKind")
        self.matching = _Matching(spec.get("matchConstraints"))
        self._conditions = [condition["expression"] for condition in spec.get("matchConditions") or ()]
        variables = {variable["name"]: variable["expression"] for variable in spec.get("variables") or ()}
        self._validations = [
            _Validation.of(validation, variables) for validation in spec.get("validations") or ()
        ]
        self._mutations = [
            with_variables(as_map(mutation["applyConfiguration"]["expression"]), variables)
            for mutation in spec.get("mutations") or ()
        ]

    def mutate(self, request: AdmissionRequest, params: Json | None) -> None:
        """Change `request.new`. Raises ExpressionError."""
        evaluation = _Evaluation(request)
        values = evaluation.values(params)
        if evaluation.meet(self._conditions, values):
            for mutation in self._mutations:
                merge(request.new, evaluate(mutation, values), strategic=True)

    def denial(self, request: _Evaluation, params: Json | None) -> tuple[str, str] | None:
        """The reason and the message of the first validation that fails. Raises ExpressionError."""
        values = request.values(params)
        if request.meet(self._conditions, values):
            for validation in self._validations:
                if evaluate(validation.expression, values) is not True:
                    return validation.reason, validation.message(values)
        return None


class _Bound(NamedTuple):
    policy: AdmissionPolicy
    binding: Json
    """Its spec."""
    matching: _Matching
    """What the binding selects of what its policy selects."""
    names: str
    """Of both, for messages."""


@dataclass(frozen=True, slots=True)
class AdmissionPolicies:
    """The policies of a store."""

    store: ObjectStore
    catalog: Catalog
    _bound: dict[Hashable, list[_Bound]] = field(default_factory=dict)
    """By the kind, operation and subresource that they include, and by the state of the policies."""

    def mutate(self, request: AdmissionRequest) -> None:
        """Change `request.new` as the policies say, in the order of their bindings. Raises StatusError."""
        for policy, params, denied in self._selecting("Mutating", request):
            try:
                policy.mutate(request, params)
            except ExpressionError as error:
                if policy.fails:
                    raise denied("Invalid", str(error)) from None

    def validate(self, request: AdmissionRequest) -> None:
        """Raises StatusError if a policy denies it."""
        evaluation = _Evaluation(request)
        for policy, params, denied in self._selecting("Validating", request):
            try:
                denial = policy.denial(evaluation, params)
            except ExpressionError as error:
                denial = ("Invalid", str(error)) if policy.fails else None
            if denial is not None:
                raise denied(*denial)

    def _selecting(
        self, sort: str, request: AdmissionRequest
    ) -> Iterator[tuple[AdmissionPolicy, Json | None, functools.partial[StatusError]]]:
        """The policies that select a request, once for each parameter, with what makes a denial."""
        if request.kind.group == _GROUP:
            return  # as in Kubernetes: else a policy could keep its own object from being changed
        bound = self._including(sort, request)
        if not bound:
            return
        home = self.store.collection(NAMESPACES).get(("", request.metadata.get("namespace", "")))
        namespace = home.labels if home else {}
        labels = [obj["metadata"].get("labels") or {} for obj in (request.old, request.new) if obj]
        for policy, binding, matching, names in bound:
            if all(one.selects(labels, namespace) for one in (policy.matching, matching)):
                for params in self._params(policy, binding, request):
                    yield policy, params, functools.partial(_denied, request, names)

    def _including(self, sort: str, request: AdmissionRequest) -> list[_Bound]:
        """The policies with a binding that deny such requests, in the order of their bindings."""
        kind, store = request.kind, self.store
        of_policies = f"{sort.lower()}admissionpolicies.{_GROUP}"
        of_bindings = f"{sort.lower()}admissionpolicybindings.{_GROUP}"
        state = (store.changes[of_policies], store.changes[of_bindings])
        key = (sort, state, kind.group, kind.version, kind.plural, request.operation, request.subresource)
        found = self._bound.get(key)
        if found is not None:
            return found
        if len(self._bound) >= _CACHED_REQUESTS:
            self._bound.clear()
        found = self._bound[key] = []
        policies = store.collection(of_policies)
        for (_, name), stored in sorted(store.collection(of_bindings).items()):
            binding = _spec(stored.raw)
            stored_policy = policies.get(("", binding["policyName"]))
            if stored_policy is None or "Deny" not in binding.get("validationActions", ("Deny",)):
                continue
            policy, matching = _policy(stored_policy.raw), _Matching(binding.get("matchResources"))
            if policy.matching.includes(request) and matching.includes(request):
                names = f"{sort}AdmissionPolicy '{binding['policyName']}' with binding '{name}'"
                found.append(_Bound(policy, binding, matching, names))
        return found

    def _params(
        self, policy: AdmissionPolicy, binding: Json, request: AdmissionRequest
    ) -> Iterator[Json | None]:
        """The objects that the binding names, in the namespace of the request; None: it names no kind."""
        reference = binding.get("paramRef")
        if policy.param_kind is None or reference is None:
            yield None
            return
        group, _, version = policy.param_kind["apiVersion"].rpartition("/")
        for kind in self.catalog.of_version(group, version):
            if kind.kind == policy.param_kind["kind"]:
                namespace = request.metadata.get("namespace", "") if kind.namespaced else ""
                name, selector = reference.get("name"), _selector(reference.get("selector"))
                for key, stored in sorted(self.store.collection(kind.collection).items()):
                    named = key[0] == namespace and name in (None, key[1])
                    if named and selects(selector, stored.labels):
                        yield stored.read()


def _denied(request: AdmissionRequest, names: str, reason: str, message: str) -> StatusError:
    text = f"{{}} is forbidden: {names} denied request: {message}"
    return request.kind.refusal(_CODES[reason], request.metadata["name"], text, reason)


@functools.lru_cache(_CACHED_SPECS)
def _policy(raw: bytes) -> AdmissionPolicy:
    return AdmissionPolicy(_spec(raw))


@functools.lru_cache(_CACHED_SPECS)
def _spec(raw: bytes) -> Json:
    spec: Json = orjson.loads(raw)["spec"]
    return spec


def _includes(rule: Json, request: AdmissionRequest) -> bool:
    kind = request.kind
    return (
        _names(rule["apiGroups"], kind.group)
        and _names(rule["apiVersions"], kind.version)
        and _names(rule["operations"], request.operation)
        and any(
            plural in ("*", kind.plural) and subresource in ("*", request.subresource)
            for plural, _, subresource in (resource.partition("/") for resource in rule["resources"])
        )
    )


def _names(values: list[str], value: str) -> bool:
    return value in values or "*" in values


def _selector(selector: Json | None) -> LabelSelector:
    selector = selector or {}
    return LabelSelector(
        tuple(sorted((selector.get("matchLabels") or {}).items())),
        tuple(
            Requirement(expression["key"], expression["operator"], tuple(expression.get("values") or ()))
            for expression in selector.get("matchExpressions") or ()
        ),
    )

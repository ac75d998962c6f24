"""Admission policies of the small API beyond what the shipped ones need (test_gate_played.py)."""

from __future__ import annotations

import pytest

from queuectl.sandbox.kubernetes.identities import USERS
from queuectl.sandbox.kubernetes.policy_expressions import (
    ExpressionError,
    as_map,
    evaluate,
    evaluation_values,
    with_variables,
)
from tests.integration.kube_api.client import Json, configmap
from tests.integration.kube_api.test_small import CONFIGMAPS, Driven

POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
EVERY_RESOURCE: Json = {
    "apiGroups": ["*"],
    "apiVersions": ["*"],
    "resources": ["*"],
    "operations": ["CREATE"],
}
RESERVED: Json = {
    "expression": "object.metadata.name != 'reserved'",
    "messageExpression": "object.metadata.name + ' is taken'",
}


async def bound(**spec: object) -> Driven:
    """A server with a policy and a binding that denies."""
    driven = Driven()
    constraints = {"resourceRules": [EVERY_RESOURCE]}
    spec = {"validations": [RESERVED], "matchConstraints": constraints, **spec}
    await driven.ask("POST", POLICIES, {"metadata": {"name": "names"}, "spec": spec})
    binding = {"policyName": "names", "validationActions": ["Deny"]}
    await driven.ask("POST", BINDINGS, {"metadata": {"name": "names-bound"}, "spec": binding})
    return driven


async def test_a_denial_names_policy_and_binding_and_has_the_message_and_code_of_the_validation() -> None:
    answer = await (await bound()).ask("POST", CONFIGMAPS, configmap("reserved"))
    assert (answer.status, answer.json()["reason"]) == (422, "Invalid")
    assert answer.json()["message"] == (
        'configmaps "reserved" is forbidden: '
        "ValidatingAdmissionPolicy 'names' with binding 'names-bound' denied request: reserved is taken"
    )


@pytest.mark.parametrize(
    ("policy", "status"),
    [
        ({"matchConditions": [{"name": "no", "expression": "request.userInfo.username != 'admin'"}]}, 201),
        ({"validations": [{"expression": "object.data.absent == ''"}]}, 422),
        ({"validations": [{"expression": "object.data.absent == ''"}], "failurePolicy": "Ignore"}, 201),
        ({"validations": [{"expression": "object.metadata."}]}, 422),
        ({"matchConstraints": {"resourceRules": [{**EVERY_RESOURCE, "resources": ["*/status"]}]}}, 201),
        (
            {
                "matchConstraints": {
                    "resourceRules": [EVERY_RESOURCE],
                    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}},
                }
            },
            422,
        ),
    ],
    ids=[
        "condition does not hold",
        "no value",
        "no value, ignored",
        "malformed",
        "another resource",
        "namespace",
    ],
)
async def test_what_a_policy_selects_and_how_it_fails(policy: Json, status: int) -> None:
    answer = await (await bound(**policy)).ask("POST", CONFIGMAPS, configmap("reserved"))
    assert answer.status == status


async def test_no_policy_applies_to_policies() -> None:
    driven = await bound(validations=[{"expression": "false"}])
    other = {"metadata": {"name": "other"}, "spec": {"validations": [RESERVED]}}
    assert (await driven.ask("POST", POLICIES, other)).status == 201
    assert (await driven.ask("POST", CONFIGMAPS, configmap("other"))).status == 422


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("[1, 2].sum() + [3, 4].min() + [5, 6].max()", 12),
        ("'a 12'.find('[0-9]+') + 'a'.find('[0-9]+')", "12"),
        ("quantity('1Gi').isGreaterThan(quantity('1G'))", True),
        ("quantity('1.2').isGreaterThan(quantity('1100m'))", True),
        ("quantity('9223372036854775808').isGreaterThan(quantity('9223372036854775807'))", True),
        ("quantity('9223372036854775807').isGreaterThan(quantity('9223372036854775807'))", False),
        ("authorizer.group('batch').resource('jobs').namespace('a').check('create').allowed()", True),
        ("authorizer.group('queuectl.dev').resource('workloads').check('bypass').allowed()", False),
    ],
)
def test_functions_of_kubernetes(expression: str, value: object) -> None:
    assert evaluate(expression, evaluation_values(None, None, {}, None, USERS["tenant"])) == value


def test_a_variable_is_evaluated_only_if_it_is_used() -> None:
    values = evaluation_values({}, None, {}, None, USERS["tenant"])
    variables = {"absent": "object.absent", "two": "1 + 1", "four": "variables.two + variables.two"}
    assert evaluate(with_variables("true || variables.absent", variables), values) is True
    assert evaluate(with_variables("variables.four", variables), values) == 4
    with pytest.raises(ExpressionError):
        evaluate(with_variables("variables.absent", variables), values)


def test_an_object_of_a_mutation_is_a_map() -> None:
    text = as_map("true ? Object{spec: Object.spec{suspend: true}, metadata: Object.metadata{}} : Object{}")
    values = evaluation_values({}, None, {}, None, USERS["tenant"])
    assert evaluate(text, values) == {"spec": {"suspend": True}, "metadata": {}}

"""What a newcomer types: kubectl actions, and their outcome on the small and the real API server."""

from __future__ import annotations

import shlex
from typing import Any, NamedTuple

import pytest

from tests.integration.kube_api.client import MERGE, Client, eventually, job, pod
from tests.integration.kube_api.kubectl import Kubectl, Ran

pytestmark = pytest.mark.asyncio(loop_scope="session")


class Action(NamedTuple):
    """Arguments of kubectl, and a part of what it prints. NS stands for the test's namespace.

    `real` is what it prints on the real API server, if that differs. A text that begins with `error:` is
    printed with an exit code other than 0; `error:` itself is not a part of it.
    """

    arguments: str
    prints: str
    real: str | None = None
    stdin: Any = None


_QUEUED = job("j")
_OTHER = job("j", parallelism=3)
_FOUND = "the server could not find the requested resource"
_NO_KUBELET = "error:no preferred addresses found"

ACTIONS = {
    "create": [
        Action("create namespace NS-new", "namespace/NS-new created"),
        Action("create namespace NS", 'error:namespaces "NS" already exists'),
        Action("create job a --image=busybox:1 -- sleep 5", "job.batch/a created"),
        Action("create job a --image=busybox:1", 'error:jobs.batch "a" already exists'),
        Action("create cronjob c --image=busybox --schedule='0 0 1 1 *'", "cronjob.batch/c created"),
        Action("create job b --from=cronjob/c", "job.batch/b created"),
        Action("create configmap m --from-literal=a=b", "configmap/m created"),
        Action("create secret generic s --from-literal=a=b", "secret/s created"),
        Action("get secret s -o jsonpath={.data.a}", "Yg=="),
        Action(
            "create secret docker-registry r --docker-server=x --docker-username=u --docker-password=p",
            "secret/r created",
        ),
        Action("create quota q --hard=configmaps=50", "resourcequota/q created"),
        Action("create serviceaccount sa", "serviceaccount/sa created"),
        Action("create deployment d --image=nginx --replicas=0", "deployment.apps/d created"),
        Action("get deployment d -o jsonpath={.spec.replicas}", "0"),
        Action("create role r --verb=get --resource=pods", "role.rbac.authorization.k8s.io/r created"),
        Action("create rolebinding r --role=r --serviceaccount=NS:sa", "rolebinding.rbac"),
        Action("create clusterrole NS --verb=get --resource=pods", "clusterrole.rbac"),
        Action("create clusterrolebinding NS --clusterrole=NS --user=a", "clusterrolebinding.rbac"),
        Action("create priorityclass NS --value=1000", "priorityclass.scheduling.k8s.io/NS created"),
        Action("create pdb b --selector=a=b --min-available=50%", "poddisruptionbudget.policy/b created"),
        Action("get pdb b -o jsonpath={.spec.minAvailable}", "50%"),
        Action("create service clusterip s --tcp=80:8080", "service/s created"),
        Action("expose deployment d --port=80", "service/d exposed"),
        Action("create ingress i --rule=a/b=c:80", f"error:{_FOUND}", "ingress.networking.k8s.io/i created"),
        Action("run p --image=nginx --env=A=B --labels=a=b", "pod/p created"),
        Action("get pod p -o jsonpath={.spec.containers[0].env[0].value}", "B"),
        Action("run q --image=nginx --dry-run=client -o name", "pod/q"),
        Action("delete namespace NS-new", 'namespace "NS-new" deleted'),
    ],
    "change": [
        Action("create -f -", "job.batch/j created", stdin=_QUEUED),
        Action("delete job j", 'job.batch "j" deleted'),
        Action("apply -f -", "job.batch/j created", stdin=_QUEUED),
        Action("apply -f -", "job.batch/j unchanged", stdin=_QUEUED),
        Action("diff -f -", "", stdin=_QUEUED),
        Action("diff -f -", "error:+  parallelism: 3", stdin=_OTHER),
        Action("apply -f - --dry-run=server", "job.batch/j configured (server dry run)", stdin=_OTHER),
        Action("delete job j --cascade=foreground", 'job.batch "j" deleted'),
        Action("apply --server-side -f -", "job.batch/j serverside-applied", stdin=_QUEUED),
        Action("apply --server-side -f -", "job.batch/j serverside-applied", stdin=_OTHER),
        Action("get job j -o jsonpath={.spec.parallelism}", "3"),
        Action(
            "apply --server-side --field-manager=other -f -",
            'error:Apply failed with 1 conflict: conflict with "kubectl": .spec.parallelism',
            stdin=job("j", parallelism=4),
        ),
        Action(
            "apply --server-side --field-manager=other --force-conflicts -f -",
            "job.batch/j serverside-applied",
            stdin=job("j", parallelism=4),
        ),
        Action("replace -f -", "error:spec.selector: Required value", stdin=_QUEUED),
        Action("label job j team=red", "job.batch/j labeled"),
        Action("annotate job j note=x", "job.batch/j annotated"),
        Action("""patch job j -p '{"spec":{"backoffLimit":1}}'""", "job.batch/j patched"),
        Action("set image job/j main=other:1", "error:field is immutable"),
        Action("edit job j", "Edit cancelled, no changes made."),
        Action("scale job/j --replicas=2", f"error:{_FOUND}"),
        Action("create deployment d --image=nginx --replicas=0", "deployment.apps/d created"),
        Action("scale deployment d --replicas=2", f"error:{_FOUND}", "deployment.apps/d scaled"),
        Action("rollout restart deployment d", "deployment.apps/d restarted"),
        Action("rollout pause deployment d", "deployment.apps/d paused"),
        Action("delete jobs --all", 'job.batch "j" deleted'),
        Action("delete job j", 'error:jobs.batch "j" not found'),
        Action("delete deployment d --dry-run=server", "(server dry run)"),
    ],
    "read": [
        Action("create -f -", "job.batch/j created", stdin=_QUEUED),
        Action("get all", "job.batch/j"),
        Action("get jobs -o wide", "Suspended"),
        Action("get jobs -A --sort-by=.metadata.name", "NAMESPACE"),
        Action("get job j -o yaml", "suspend: true"),
        Action("get jobs -l team=blue", "No resources found in NS namespace."),
        Action("get jobs -w --request-timeout=1s", "Suspended"),
        Action("get job other", 'error:jobs.batch "other" not found'),
        Action("get nosuch", 'error:the server doesn\'t have a resource type "nosuch"'),
        Action("get events", ""),
        Action("events --for=job/j", ""),
        Action("get --raw /readyz", "ok"),
        Action("describe job j", "registry/image:1"),
        Action("describe namespace NS", "Active"),
        Action("describe node NS", 'error:nodes "NS" not found'),
        Action("wait --for=create job/j --timeout=10s", "job.batch/j condition met"),
        Action("wait --for=jsonpath={.spec.suspend}=true job/j --timeout=10s", "condition met"),
        Action("wait --for=condition=Complete job/j --timeout=1s", "error:timed out waiting"),
        Action("explain job", "FIELDS:"),
        Action("explain job.spec.suspend", "FIELD: suspend <boolean>"),
        Action("explain pod.spec.containers --recursive", "image\t<string>"),
        Action("explain pytorchjob.spec.runPolicy.suspend", "FIELD: suspend <boolean>"),
        Action("explain job.spec.nosuch", 'error:field "nosuch" does not exist'),
        Action("explain nosuch", 'error:the server doesn\'t have a resource type "nosuch"'),
        Action("api-resources --api-group=batch -o name", "jobs.batch"),
        Action("api-versions", "authorization.k8s.io/v1"),
        Action("cluster-info", "Kubernetes control plane is running at"),
        Action("version", "Server Version: v1."),
        Action("top nodes", "error:Metrics API not available"),
        Action("top pods", "error:Metrics API not available"),
    ],
    "pods": [
        Action("get pods -o wide", "Running"),
        Action("logs runs", "no program runs in a pod of the sandbox (node NS, Running)", _NO_KUBELET),
        Action("logs runs -c nosuch", "error:container nosuch is not valid for pod runs"),
        Action("logs waits", ""),
        Action("logs nosuch", 'error:pods "nosuch" not found'),
        Action("exec runs -- ls", "error:no program runs in a pod of the sandbox", _NO_KUBELET),
        Action("exec waits -- ls", "error:pod waits does not have a host assigned"),
        Action("attach runs", "error:no program runs in a pod of the sandbox", _NO_KUBELET),
        Action("cp runs:/etc/hosts NS", "error:no program runs in a pod of the sandbox", _NO_KUBELET),
        Action("port-forward waits 80", "error:pod is not running. Current status=Pending"),
        Action("cordon NS", "node/NS cordoned"),
        Action("taint node NS a=b:NoSchedule", "node/NS tainted"),
        Action("label node NS gpu=a100", "node/NS labeled"),
        Action("uncordon NS", "node/NS uncordoned"),
        Action("delete pod waits --now", 'pod "waits" deleted'),
        Action("delete pod runs --force", 'pod "runs" force deleted'),
        Action("delete node NS", 'node "NS" deleted'),
    ],
    "rights": [
        Action("create serviceaccount sa", "serviceaccount/sa created"),
        Action("create token sa", "eyJ"),
        Action("create token sa --duration=1s", "error:may not specify a duration less than 10 minutes"),
        Action("create token nosuch", 'error:serviceaccounts "nosuch" not found'),
        Action("auth whoami", "admin"),
        Action("auth whoami --as=alice --as-group=red --as-group=blue", "[red blue system:authenticated]"),
        Action("auth can-i create jobs", "yes"),
        Action("auth can-i '*' '*'", "yes"),
        Action("auth can-i delete nodes --as=tenant", "error:no"),
        Action("auth can-i '*' '*' --as=tenant", "error:no"),
        Action("auth can-i create jobs --as=alice", "error:no"),
        Action("auth can-i get /readyz --as=system:serviceaccount:NS:sa", "error:no", "yes"),
        Action("auth can-i get /version --as=system:serviceaccount:NS:sa", "yes"),
        Action("auth can-i --list --as=alice", "selfsubjectaccessreviews.authorization.k8s.io"),
        Action("get secrets --as=alice", 'error:secrets is forbidden: User "alice" cannot list'),
        Action(
            "get jobs --as=system:serviceaccount:NS:sa",
            'error:jobs.batch is forbidden: User "system:serviceaccount:NS:sa" cannot list',
        ),
    ],
}


async def test_at_least_45_actions_are_tried() -> None:
    assert sum(map(len, ACTIONS.values())) >= 45


@pytest.mark.parametrize("actions", ACTIONS.values(), ids=list(ACTIONS))
async def test_each_action_has_its_outcome(
    kubectl: Kubectl, api: Client, pytorch: None, actions: list[Action]
) -> None:
    await _prepared(api, pods=actions is ACTIONS["pods"])
    wrong = [text for action in actions if (text := await _judged(kubectl, action))]
    assert not wrong, "\n".join(wrong)


async def _prepared(api: Client, *, pods: bool) -> None:
    """On a real server wait for the account that its pods need. With `pods`: one on a node, one without."""
    if api.server.sort == "real":
        account = f"/api/v1/namespaces/{api.namespace}/serviceaccounts/default"

        async def exists() -> bool:
            return (await api.call("GET", account))[0] == 200

        await eventually(exists, account)
    if not pods:
        return
    await api.create("/api/v1/nodes", {"metadata": {"name": api.namespace}})
    for name in ("runs", "waits"):
        await api.create(api.pods, pod(name))
    target = {"metadata": {"name": "runs"}, "target": {"kind": "Node", "name": api.namespace}}
    await api.create(f"{api.pods}/runs/binding", target)
    await api.patch(f"{api.pods}/runs/status", {"status": {"phase": "Running"}}, MERGE)


async def _judged(kubectl: Kubectl, action: Action) -> str:
    """What is wrong with the outcome; empty if it is as expected."""
    namespace, sort = kubectl.api.namespace, kubectl.api.server.sort
    arguments = shlex.split(action.arguments.replace("NS", namespace))
    ran: Ran = await kubectl.run(*arguments, stdin=action.stdin)
    expected = action.real if sort == "real" and action.real is not None else action.prints
    fails, text = expected.startswith("error:"), expected.removeprefix("error:").replace("NS", namespace)
    printed = ran.out + ran.error
    if text in printed and (ran.code != 0) is fails:
        return ""
    return f"{sort}: kubectl {action.arguments}: exit code {ran.code}: expected {text!r} in {printed!r}"

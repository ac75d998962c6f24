"""The configuration file: valid settings, and messages on invalid ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

import pytest
import yaml
from pydantic import BaseModel

import queuectl
from queuectl.core.model import policy
from queuectl.core.model.resources import ResourceForms, Transformation
from queuectl.importers.kueue import import_kueue
from queuectl.ports.rates import FreePayer, LostPayer, Rate, RateCard
from queuectl.settings import Address, ConfigurationError, Settings, load
from tests.job_kinds import JOB_KINDS

DOCS = Path(queuectl.__file__).parent.parent / "docs"

URL = "postgresql://queuectl@db/queuectl"
Write = Callable[[str | bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def file(content: str | bytes) -> Path:
        path = tmp_path / "queuectl.yaml"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return file


def problems(path: Path, **more: str) -> tuple[str, ...]:
    with pytest.raises(ConfigurationError) as caught:
        load(path, environ=more)
    return caught.value.problems


def test_without_a_file_the_defaults_are_loopback() -> None:
    settings = load(environ={})
    assert settings.controller.listen.loopback
    assert settings.api.listen.loopback
    assert settings.database.url is None


def test_a_file_sets_what_it_names(write: Write) -> None:
    path = write(
        "\ufeffdatabase: {url: 'postgresql://file/db'}\n"
        "controller:\n  listen: '[::]:8081'\n  budget: 5\n  statusSeconds: 2\n"
        "api: {listen: '[::1]:0', refreshSeconds: 1.5}\n"
    )
    settings = load(path, environ={})
    assert settings.controller.listen == Address("::", 8081)
    assert str(settings.controller.listen) == "[::]:8081"
    assert (settings.controller.budget, settings.controller.status_seconds) == (5, 2.0)
    assert settings.api.listen == Address("::1", 0)
    assert settings.database_url == "postgresql://file/db"


def test_kueue_s_labels_count_only_if_configured(write: Write) -> None:
    assert not load(environ={}).compatibility.kueue_labels
    assert load(write("compatibility: {kueueLabels: true}"), environ={}).compatibility.kueue_labels
    assert problems(write("compatibility: {kueueLabels: 'yes'}")) == (
        f"{write('compatibility: {kueueLabels: yes please}')}: line 1: compatibility.kueueLabels: "
        "'yes': must be true or false",
    )


def test_a_flag_takes_precedence_over_the_environment_and_that_over_the_file(write: Write) -> None:
    path = write("database: {url: 'postgresql://file/db'}")
    environ = {"QUEUECTL_DATABASE_URL": "postgresql://environment/db"}
    assert load(path, environ=environ).database_url == "postgresql://environment/db"
    assert load(path, environ=environ, database_url=URL).database_url == URL


def test_no_database_is_reported_when_it_is_needed() -> None:
    with pytest.raises(ConfigurationError, match="QUEUECTL_DATABASE_URL"):
        _ = load(environ={}).database_url


def test_all_problems_are_reported_at_once_with_their_lines_and_paths(write: Write) -> None:
    found = problems(
        write(
            "controller: {listen: nowhere, budget: 0, effects: many, leaseSeconds: 3}\n"
            "api: {listen: nowhere, refreshSeconds: x}\n"
            "database: {url: 'mysql://root:hunter2@db'}\n"
            "extra: 1\n"
        )
    )
    places = [": ".join(problem.partition(".yaml: ")[2].split(": ")[:2]) for problem in found]
    assert sorted(places) == [
        "line 1: controller.budget",
        "line 1: controller.effects",
        "line 1: controller.leaseSeconds",
        "line 1: controller.listen",
        "line 2: api.listen",
        "line 2: api.refreshSeconds",
        "line 3: database.url",
        "line 4: extra",
    ]
    assert "hunter2" not in "".join(found)


@pytest.mark.parametrize(
    "listen", ["0.0.0.0:80", "10.0.0.1:80", "[::]:80", "example.com:80", "[::ffff:1.2.3.4]:1"]
)
def test_beyond_loopback_rest_needs_tls_and_authentication_by_the_cluster(write: Write, listen: str) -> None:
    (problem,) = problems(write(f"api: {{listen: '{listen}'}}"))
    assert "is not loopback" in problem
    assert "api.tls" in problem
    assert "port-forward" in problem
    (problem,) = problems(write(f"api: {{listen: '{listen}', identity: local}}"))
    assert "every client that reaches it could read everything" in problem


@pytest.mark.parametrize(("changes", "identity"), [("caller", "local"), ("local", "kubernetes")])
def test_changes_by_rest_need_the_identity_that_gives_them_rights(
    write: Write, changes: str, identity: str
) -> None:
    (problem,) = problems(write(f"api: {{changes: {changes}, identity: {identity}}}"))
    assert f"changes: {changes} needs identity: " in problem
    assert f"and it is {identity}" in problem


@pytest.mark.parametrize(
    "listen",
    ["80", ":80", "localhost", "localhost:", "localhost:65536", "localhost:-1", "::1:80", "a:b", "x:٣"],
)
def test_an_address_has_a_host_and_a_port(write: Write, listen: str) -> None:
    (problem,) = problems(write(f"controller: {{listen: '{listen}'}}"))
    assert "HOST:PORT" in problem


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("a: [1]\nb: *x", "line 2, column 4: the alias *x has no anchor"),
        ("api: {}\napi: {}", "line 2, column 1: key 'api' is given twice"),
        ("[" * 5000, "nested deeper than"),
        ("\tapi: {}", "line 1, column 1"),
        ("api: {}\n---\napi: {}", "single document"),
        ("- api", "must be an object"),
        ("text", "must be an object"),
        ("api: !!python/object/apply:os.system [ls]", "line 1, column 6"),
        ("? [1, 2]\n: 3", "a key must be text"),
        (b"\xff\xfe\xfa", ""),
        (b"api: {\x00}", "the character U+0000 is not allowed"),
        ("a: " + "9" * 5000, ""),
        ("a: 2001-99-99", ""),
        (b"#" * ((1 << 20) + 1), "larger than"),
        ("controller: {budget: yes}", "controller.budget"),
    ],
)
def test_a_file_that_cannot_be_parsed_is_refused_with_line_and_column(
    write: Write, content: str | bytes, told: str
) -> None:
    found = problems(write(content))
    assert any(told in problem for problem in found), found
    assert all("queuectl.yaml" in problem for problem in found)


@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)",
        "grafana/{name}",
        "https://x/{Name}",
        "https://x/{name",
        "https://x/{uid.__class__}",
    ],
)
def test_a_link_of_workloads_is_a_url_with_known_fields(write: Write, url: str) -> None:
    template = "https://logs.example.com/{namespace}/{kind}/{name}?uid={uid}"
    assert load(write(f"api: {{links: {{Logs: '{template}'}}}}"), environ={}).api.links == {"Logs": template}
    (problem,) = problems(write(f"api: {{links: {{Logs: '{url}'}}}}"))
    assert "api.links" in problem
    assert "'Logs'" in problem
    assert repr(url) in problem
    assert "{namespace}, {kind}, {name}, {uid}" in problem


def test_a_missing_file_is_reported_by_name(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path / "none.yaml")
    assert problem == f"{tmp_path}/none.yaml: No such file or directory"
    assert "directory" in problems(tmp_path)[0]


def test_an_empty_file_means_the_defaults(write: Write) -> None:
    assert load(write(""), environ={}) == load(environ={})
    assert load(write("# nothing\n"), environ={}) == load(environ={})


def test_the_public_configuration_has_no_password(write: Write) -> None:
    settings = load(database_url="postgresql://u:hunter2@db/q", environ={})
    assert "hunter2" not in repr(settings)
    assert "hunter2" not in repr(settings.public())
    assert settings.public()["controller"]["listen"] == "127.0.0.1:8081"


def test_all_replicas_on_one_database_sign_cursors_with_the_same_key() -> None:
    one, again = (load(database_url=URL, environ={}).cursor_key for _ in range(2))
    other = load(database_url=URL + "2", environ={}).cursor_key
    assert one == again
    assert one != other


# --- section `scheduling`


def test_documents_and_notes_of_an_import_name_settings_that_exist() -> None:
    configuration = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration"}
    kueue = {**configuration, "waitForPodsReady": {"timeout": "30m"}, "admissionFairSharing": {}}
    texts = {note.field: note.text for note in import_kueue([("file", kueue)], JOB_KINDS).notes}
    texts |= {str(page.relative_to(DOCS)): page.read_text() for page in sorted(DOCS.rglob("*.md"))}
    named = {(where, path) for where, text in texts.items() for path in _named_settings(text)}
    assert {("waitForPodsReady.timeout", "scheduling.waitForPodsReady.timeoutSeconds")} <= named
    assert [one for one in sorted(named) if not _exists(one[1])] == []


def _named_settings(text: str) -> Iterator[str]:
    """Paths in backquotes that begin with a section of the configuration."""
    sections = "|".join(field.alias or "" for field in Settings.model_fields.values())
    yield from re.findall(rf"`((?:{sections})[.][A-Za-z.]+)`", text)


def _exists(path: str) -> bool:
    model: type[BaseModel] | None = Settings
    for name in path.split("."):
        fields = {} if model is None else {field.alias: field for field in model.model_fields.values()}
        if name not in fields:
            return False
        parts = (fields[name].annotation, *get_args(fields[name].annotation))
        model = next((part for part in parts if isinstance(part, type) and issubclass(part, BaseModel)), None)
    return True


def test_account_keys_are_passed_to_the_core(write: Write) -> None:
    path = write(
        "accounting:\n  keys:\n"
        "  - {name: cost-center, label: example.com/cost-center, sources: [Namespace]}\n"
        "  - {name: project, label: project, allowed: [blue, red]}\n"
        "  - {name: team, sources: [Group], allowed: ['oidc:/teams/ml']}\n"
        "  - {name: flow, sources: [Owner], required: true}\n"
    )
    assert load(path, environ={}).configuration().account_keys == (
        policy.AccountKey(
            name="cost-center", label="example.com/cost-center", sources=(policy.AccountSource.NAMESPACE,)
        ),
        policy.AccountKey(name="project", label="project", allowed=frozenset({"blue", "red"})),
        policy.AccountKey(
            name="team",
            label="",
            sources=(policy.AccountSource.GROUP,),
            allowed=frozenset({"oidc:/teams/ml"}),
        ),
        policy.AccountKey(name="flow", label="", sources=(policy.AccountSource.OWNER,), required=True),
    )


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ("{name: user, label: a}", "user is accounted in any case: choose another name"),
        ("{name: a, label: a, sources: [Namespace, Namespace]}", "names an object twice"),
        ("{name: a, label: a, sources: [Pod]}", "'Pod': must be 'Workload', 'Namespace', 'Group' or"),
        (
            "{name: a, sources: [Group, Namespace], allowed: [ml]}",
            "label: must be given where sources has",
        ),
        (
            "{name: a, label: a, sources: [Group], allowed: [ml]}",
            "label: must be given where sources has",
        ),
        ("{name: a}", "label: must be given where sources has"),
        ("{name: a, sources: [Group]}", "allowed: must list the groups that count"),
        ("{name: A, label: a}", "'A': must match"),
        ("{name: a, label: 'a b'}", "'a b': must match"),
        ("{name: a, label: a, allowed: []}", "must not be empty"),
        ("{name: a, label: a}, {name: a, label: b}", "keys: the name a is used twice"),
    ],
)
def test_account_keys_that_make_no_sense_are_refused(write: Write, keys: str, problem: str) -> None:
    assert problem in problems(write(f"accounting: {{keys: [{keys}]}}"))[0]


RATE = "{resource: nvidia.com/gpu, from: 2026-01-01, price: '2.50'}"


def test_a_rate_card_has_its_rates_from_the_days_of_its_zone_on(write: Write) -> None:
    path = write(
        "accounting:\n  zone: Europe/Berlin\n  keys: [{name: cost-center, label: cost-center}]\n  rateCard:\n"
        "    {currency: EUR, account: cost-center, free: ByQuota, lost: Nobody, rates: [\n"
        f"    {RATE},\n"
        "    {resource: cpu, flavor: spot, class: low, from: '2026-07-01T06:00:00Z', price: '0.04', "
        "listPrice: '0.1'}]}\n"
    )
    card = load(path, environ={}).accounting.card()
    assert card == RateCard(
        *("EUR", 2, "cost-center", FreePayer.BY_QUOTA, LostPayer.NOBODY),
        (
            Rate("nvidia.com/gpu", None, None, datetime(2025, 12, 31, 23, tzinfo=UTC), 2_500_000, 2_500_000),
            Rate("cpu", "spot", "low", datetime(2026, 7, 1, 6, tzinfo=UTC), 40_000, 100_000),
        ),
    )
    assert load(environ={}).accounting.card() is None


@pytest.mark.parametrize(
    ("card", "problem"),
    [
        ("{currency: EUR, rates: []}", "must not be empty"),
        ("{currency: euro, rates: [RATE]}", "'euro': must match"),
        ("{currency: EUR, decimals: 5, rates: [RATE]}", "must be at most 4"),
        ("{currency: EUR, rates: [RATE, RATE]}", "rates[1]: is for the same as rates[0], from the same time"),
        (
            "{currency: EUR, account: team, rates: [RATE]}",
            "rateCard.account is 'team', must be one of keys: []",
        ),
        ("{currency: EUR, free: Me, rates: [RATE]}", "must be 'Nobody', 'ByUse' or 'ByQuota'"),
        (
            "{currency: EUR, rates: [{resource: cpu, from: 2026-01-01, price: '-1'}]}",
            "must be at least 0",
        ),
        (
            "{currency: EUR, rates: [{resource: cpu, from: 2026-01-01, price: 1.5}]}",
            "price",
        ),
        (
            "{currency: EUR, rates: [{resource: cpu, from: 2026-01-01, price: '1e3'}]}",
            'must be a decimal number such as "2.50"',
        ),
        (
            "{currency: EUR, rates: [{resource: cpu, from: '2026-01-01T06:30:00Z', price: '1'}]}",
            "must be a day such as 2026-07-01, or an hour of UTC such as 2026-07-01T06:00:00Z",
        ),
        (
            "{currency: EUR, rates: [{resource: cpu, from: '2026-01-01T06:00:00', price: '1'}]}",
            "must be a day such as 2026-07-01, or an hour of UTC",
        ),
        (
            "{currency: EUR, rates: [{resource: cpu, from: '0001-01-01', price: '1'}]}",
            "'0001-01-01', must be a day such as 2026-07-01",
        ),
    ],
)
def test_rates_that_make_no_sense_are_refused(write: Write, card: str, problem: str) -> None:
    text = f"accounting: {{zone: Asia/Kathmandu, rateCard: {card.replace('RATE', RATE)}}}"
    assert problem in problems(write(text))[0]


def test_the_example_of_a_configuration_has_each_setting_with_its_default() -> None:
    example = (DOCS / "examples" / "configuration.yaml").read_text()
    required = {"scheduling": {"admissionFairSharing": {"usageHalfLifeSeconds": 604800}}}
    assert yaml.safe_load(example) == Settings.model_validate(required).model_dump(mode="json", by_alias=True)


def test_without_a_section_scheduling_has_the_defaults_of_the_core() -> None:
    assert load(environ={}).scheduling.configuration() == policy.SchedulingConfiguration()


def test_the_section_idle_is_read(write: Write) -> None:
    path = write(
        "idle:\n"
        "  prometheus: {url: 'http://prometheus:9090/prefix', tokenFile: /run/token,\n"
        '    selector: \'job="dcgm", cluster=~"a|b"\'}\n'
        "  resources: [amd.com/gpu]\n"
        "  exemptClasses: [serving]\n"
        "  windowSeconds: 3600\n"
        "  sampleSeconds: 15\n"
        "  coverage: 0.8\n"
        "  idleBelow: 0.001\n"
        "  sparseBelow: 0.02\n"
        "  hang: {windowSeconds: 900, engineAbove: 0.8, multiprocessorsBelow: 0.04, pipesBelow: 0.02,\n"
        "    wattsBelow: 90}\n"
    )
    found = load(path, environ={}).idle
    assert found.prometheus is not None
    assert found.prometheus.token_file == Path("/run/token")
    assert found.prometheus.selector == 'job="dcgm", cluster=~"a|b"'
    assert (found.resources, found.exempt_classes) == (("amd.com/gpu",), ("serving",))
    assert (found.window_seconds, found.sample_seconds, found.coverage) == (3600, 15, 0.8)
    assert (found.idle_below, found.sparse_below) == (0.001, 0.02)
    assert tuple(found.hang.model_dump().values()) == (900, 0.8, 0.04, 0.02, 90)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("prometheus: {url: prometheus}", "idle.prometheus.url: must be http://HOST:PORT"),
        ("prometheus: {url: 'http://prometheus:99999'}", "idle.prometheus.url: must be http://HOST:PORT"),
        ("prometheus: {url: 'http://[::1'}", "idle.prometheus.url: must be http://HOST:PORT"),
        ("prometheus: {url: 'http://me:secret@prometheus'}", "idle.prometheus.url: must have no user"),
        ("prometheus: {url: 'http://prometheus/?query=up'}", "idle.prometheus.url: must have no query"),
        ("prometheus: {url: 'http://p', selector: 'job=dcgm'}", "idle.prometheus.selector"),
        ("prometheus: {url: 'http://p', selector: 'a=\"b\"} or vector(0'}", "idle.prometheus.selector"),
        ("idleBelow: 0.5", "idle: sparseBelow must be at least idleBelow"),
        ("resources: [gpu]", "idle.resources.0"),
        ("windowSeconds: 60", "idle.windowSeconds"),
    ],
)
def test_a_malformed_section_idle_names_its_field(write: Write, text: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        load(write(f"idle: {{{text}}}\n"), environ={})


def test_the_section_scheduling_is_passed_to_the_core(write: Write) -> None:
    path = write(
        "scheduling:\n"
        "  fairSharing: {enabled: true, preemptionStrategies: [LessThanInitialShare]}\n"
        "  admissionFairSharing:\n"
        "    usageHalfLifeSeconds: 604800\n"
        "    usageSamplingIntervalSeconds: 60\n"
        "    resourceWeights: {nvidia.com/gpu: 30.5, memory: 0, cpu: 500m, pods: '2'}\n"
        "  waitForPodsReady: {timeoutSeconds: 1800, requeuingBackoffBaseSeconds: 5,\n"
        "    requeuingBackoffMaxSeconds: 50, requeuingBackoffLimitCount: 0}\n"
        "  preemption: {evictionBudget: 3, evictionWindowSeconds: 7200, cooldownSeconds: 0}\n"
        "  resources:\n"
        "    excludeResourcePrefixes: [example.com/]\n"
        "    uncovered: Ignore\n"
        "    transformations:\n"
        "    - {input: a/mig, strategy: Replace, multiplyBy: a/gpu, outputs: {a/part: 2, cpu: 500m}}\n"
        "    deviceClassMappings: [{name: a/gpu, deviceClassNames: [gpu.a, any.a]}]\n"
        "  nodes:\n"
        "    unusableConditions: [{type: GpuUnhealthy}, {type: NicHealthy, status: 'False'}]\n"
        "    unusableTaints: [example.com/broken]\n"
        "    settleSeconds: 0\n"
        "    lossSeconds: 90\n"
        "    stockOutSeconds: 600\n"
    )
    settings = load(path, environ={})
    assert settings.scheduling.configuration() == policy.SchedulingConfiguration(
        fair_sharing=True,
        strategies=(policy.PreemptionStrategy.LESS_THAN_INITIAL_SHARE,),
        usage_sharing=policy.AdmissionFairSharing(
            half_life=604_800,
            sampling_interval=60,
            weights=(("cpu", 500), ("memory", 0), ("nvidia.com/gpu", 30_500), ("pods", 2_000)),
        ),
        pods_ready_timeout=1800,
        requeueing=policy.RequeuingStrategy(base_seconds=5, most_seconds=50, limit=0),
        eviction_budget=3,
        eviction_window=7200,
        cooldown=0,
        resources=ResourceForms(
            excluded_prefixes=("example.com/",),
            ignore_uncovered=True,
            transformations=(
                Transformation(
                    input="a/mig", replace=True, multiply_by="a/gpu", outputs=(("a/part", 2), ("cpu", 500))
                ),
            ),
            device_classes=(("gpu.a", "a/gpu"), ("any.a", "a/gpu")),
        ),
        nodes=policy.NodeRules(
            unusable_conditions=(("GpuUnhealthy", "True"), ("NicHealthy", "False")),
            unusable_taints=("example.com/broken",),
            settle_seconds=0,
            loss_seconds=90,
            stock_out_seconds=600,
        ),
    )
    told = yaml.safe_dump({"scheduling": settings.public()["scheduling"]})
    assert load(write(told), environ={}).scheduling == settings.scheduling


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ("admissionFairSharing: {}", "admissionFairSharing.usageHalfLifeSeconds: is missing"),
        (
            "admissionFairSharing: {usageHalfLifeSeconds: -1}",
            "admissionFairSharing.usageHalfLifeSeconds: -1: must be at least 0",
        ),
        (
            "admissionFairSharing: {usageHalfLifeSeconds: 315360001}",
            "admissionFairSharing.usageHalfLifeSeconds: 315360001: must be at most 315360000",
        ),
        (
            "admissionFairSharing: {usageHalfLifeSeconds: 1.5}",
            "admissionFairSharing.usageHalfLifeSeconds: 1.5: must be a whole number",
        ),
        (
            "admissionFairSharing: {usageHalfLifeSeconds: 1, usageSamplingIntervalSeconds: 0}",
            "admissionFairSharing.usageSamplingIntervalSeconds: 0: must be at least 1",
        ),
        (
            "admissionFairSharing: {usageHalfLifeSeconds: 1, resourceWeights: {cpu: -1}}",
            "admissionFairSharing.resourceWeights.cpu: must be between 0 and 1000000, not -1",
        ),
        (
            "admissionFairSharing: {usageHalfLifeSeconds: 1, resourceWeights: {cpu: x}}",
            "admissionFairSharing.resourceWeights.cpu: 'x' is not a quantity",
        ),
        (
            "admissionFairSharing: {usageHalfLifeSeconds: 1, resourceWeights: {cpu: true}}",
            "admissionFairSharing.resourceWeights.cpu: must be a number, not a boolean",
        ),
        (
            "fairSharing: {preemptionStrategies: [LessThanInitialShare, LessThanOrEqualToFinalShare]}",
            "fairSharing.preemptionStrategies: must be one of LessThanOrEqualToFinalShare and "
            "LessThanInitialShare, or both in this order",
        ),
        (
            "fairSharing: {preemptionStrategies: []}",
            "fairSharing.preemptionStrategies: must be one of LessThanOrEqualToFinalShare and "
            "LessThanInitialShare, or both in this order",
        ),
        (
            "waitForPodsReady: {requeuingBackoffBaseSeconds: 61, requeuingBackoffMaxSeconds: 60}",
            "waitForPodsReady: requeuingBackoffBaseSeconds is 61, must be at most "
            "requeuingBackoffMaxSeconds, 60",
        ),
        (
            "preemption: {evictionBudget: 17}",
            "preemption.evictionBudget: 17: must be at most 16",
        ),
        ("preemption: {budget: 1}", "preemption.budget: there is no such setting"),
        (
            "resources: {transformations: [{input: nvidia.com/mig, outputs: {nvidia.com/gpu: 0.5}}]}",
            "resources.transformations.0: outputs.nvidia.com/gpu: 0.5 is no multiple of 1, the unit in which "
            "nvidia.com/gpu is counted",
        ),
        (
            "resources: {transformations: [{input: a/b, outputs: {cpu: 0}}]}",
            "resources.transformations.0: outputs.cpu: must be more than 0, not 0",
        ),
        (
            "resources: {transformations: [{input: pods, outputs: {cpu: 1}}]}",
            "resources.transformations.0: pods is counted by itself: it can't be transformed",
        ),
        (
            "resources: {transformations: [{input: a/b, strategy: Keep}]}",
            "resources.transformations.0.strategy: 'Keep': must be 'Retain' or 'Replace'",
        ),
        (
            "resources: {transformations: [{input: a/b}, {input: a/b}]}",
            "resources: transformations.1.input: a/b is the input of transformations.0 too",
        ),
        (
            "resources: {excludeResourcePrefixes: [a/], transformations: [{input: a/b}]}",
            "resources: transformations.0.input: a/b is excluded by excludeResourcePrefixes",
        ),
        (
            "nodes: {settleSeconds: 86401}",
            "nodes.settleSeconds: 86401: must be at most 86400",
        ),
        (
            "nodes: {unusableConditions: [{type: Broken, status: Yes}]}",
            "nodes.unusableConditions.0.status: true: must be 'True', 'False' or 'Unknown'",
        ),
        (
            "nodes: {unusableConditions: [{type: Broken}, {type: Broken, status: 'True'}]}",
            "nodes: unusableConditions.1: Broken=True is unusableConditions.0 already",
        ),
        (
            "nodes: {unusableTaints: [a, b, a]}",
            "nodes: unusableTaints.2: a is unusableTaints.0 already",
        ),
        (
            "nodes: {unusableTaints: ['a b']}",
            "nodes.unusableTaints.0: 'a b': must match ^[A-Za-z0-9]([A-Za-z0-9./_-]*)$",
        ),
        (
            "resources: {deviceClassMappings: "
            "[{name: a/b, deviceClassNames: [x]}, {name: a/c, deviceClassNames: [x]}]}",
            "resources: deviceClassMappings.1.deviceClassNames: x is in deviceClassMappings.0 too",
        ),
        (
            "resources: {deviceClassMappings: [{name: a/b, deviceClassNames: []}]}",
            "resources.deviceClassMappings.0.deviceClassNames: must not be empty",
        ),
        (
            "resources: {excludeResourcePrefixes: ['']}",
            "resources.excludeResourcePrefixes.0: '': must have at least 1 characters",
        ),
    ],
)
def test_invalid_scheduling_is_reported_with_its_path_and_limit(
    write: Write, section: str, told: str
) -> None:
    path = write(f"scheduling: {{{section}}}")
    assert problems(path) == (f"{path}: line 1: scheduling.{told}",)


def test_history_is_kept_for_13_months_or_as_long_as_is_set(write: Write) -> None:
    assert load(environ={}).database.keep_months == 13
    assert load(write("database: {keepMonths: null}"), environ={}).database.keep_months is None
    assert load(write("database: {keepMonths: 3}"), environ={}).database.keep_months == 3


def test_the_retained_history_must_cover_the_past_usage_that_counts(write: Write) -> None:
    def settings(half_life: int) -> Path:
        return write(
            f"database: {{keepMonths: 1}}\n"
            f"scheduling: {{admissionFairSharing: {{usageHalfLifeSeconds: {half_life}}}}}\n"
        )

    load(settings(115_200), environ={})
    (problem,) = problems(settings(604_800))
    assert "scheduling.admissionFairSharing.usageHalfLifeSeconds is 604800, must be at most 115200" in problem
    assert "database.keepMonths is 1" in problem

"""The metrics of REST and of the webhook."""

from __future__ import annotations

from datetime import UTC, datetime

from queuectl.metrics.exposition import Exposition, RestMetrics, WebhookMetrics

EXPIRY = datetime(2027, 1, 1, tzinfo=UTC)


def lines(metrics: Exposition) -> list[str]:
    return metrics.render().decode().splitlines()


def test_requests_are_counted_by_endpoint_and_code() -> None:
    metrics = RestMetrics(age=lambda: 0.25)
    metrics.answered("/api/v1/workloads", 200, 0.004)
    metrics.answered("/api/v1/workloads", 403, 0.001)
    metrics.kubernetes_answered("create", "tokenreviews", 201, 0.003)
    found = lines(metrics)
    for line in (
        'queuectl_api_requests_total{code="200",endpoint="/api/v1/workloads"} 1.0',
        'queuectl_api_requests_total{code="403",endpoint="/api/v1/workloads"} 1.0',
        'queuectl_api_request_duration_seconds_bucket{endpoint="/api/v1/workloads",le="0.0025"} 1.0',
        'queuectl_kubernetes_requests_total{code="201",resource="tokenreviews",verb="create"} 1.0',
        "queuectl_api_state_age_seconds 0.25",
    ):
        assert line in found


def test_the_age_of_a_ledger_that_was_never_read_is_infinite() -> None:
    assert "queuectl_api_state_age_seconds +Inf" in lines(RestMetrics(age=lambda: None))


def test_the_expiry_of_a_certificate_and_a_problem_with_its_replacement_are_exported() -> None:
    problem: list[str | None] = [None]
    metrics = WebhookMetrics(not_after=lambda: EXPIRY, problem=lambda: problem[0])
    (expiry,) = (line for line in lines(metrics) if line.startswith("queuectl_certificate_expiry"))
    assert float(expiry.split()[1]) == EXPIRY.timestamp()
    assert "queuectl_certificate_problem 0.0" in lines(metrics)
    problem[0] = "the key does not fit"
    assert "queuectl_certificate_problem 1.0" in lines(metrics)


def test_reviews_are_counted_by_result() -> None:
    metrics = WebhookMetrics(not_after=lambda: EXPIRY, problem=lambda: None)
    metrics.reviewed("changed", 0.001)
    assert 'queuectl_webhook_reviews_total{result="changed"} 1.0' in lines(metrics)
    assert 'queuectl_webhook_reviews_total{result="refused"} 0.0' in lines(metrics)

"""Usage of a short year is the integral of what was held, and a unit too much is found."""

from __future__ import annotations

import pytest

from queuectl.ledger.pool import connection_pool
from tests.integration.ledger import year
from tests.integration.ledger.accounting import Cluster, findings


@pytest.mark.acceptance
async def test_usage_of_some_weeks_is_the_integral_to_the_unit(migrated: str, cluster: str) -> None:
    played = year.Year(seed=1, workloads=300, days=33)
    assert await year.checked(migrated, cluster, played) == []
    async with connection_pool(migrated) as pool:
        one = Cluster(pool, cluster)
        await one.rows(
            "UPDATE queuectl.usage_month SET amount = amount + 1 WHERE ctid = "
            "(SELECT ctid FROM queuectl.usage_month WHERE cluster_id = :c AND resource = 'cpu' LIMIT 1)"
        )
        assert len(await year.differences(played, one)) == 2
    assert {found.code for found in await findings(migrated, cluster)} == {"UsageSums"}

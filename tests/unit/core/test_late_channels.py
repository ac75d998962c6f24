"""All actions in any order, while events lag and repeat, beside the reference implementation."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core import laws, profiles
from tests.unit.core.driver import Driver
from tests.unit.core.late_channels import LATE, begin, some_of
from tests.unit.core.trees import Dice

DATA = st.binary(min_size=48, max_size=48)
CHECKED = (
    laws.a_reason_is_recorded_once,
    laws.workloads_wait_for_what_the_reference_says,
    laws.what_runs_is_charged_as_requested,
    laws.a_new_process_says_the_same,
)


@profiles.sequences(125)
@given(DATA, st.binary(min_size=20, max_size=20), st.lists(DATA, min_size=20, max_size=40))
def test_whatever_happens_workloads_wait_and_run_by_the_rules(
    policy: bytes, table: bytes, script: list[bytes]
) -> None:
    driver = Driver(LATE, *CHECKED, actions=some_of(Dice(table)), prompt=False)
    begin(driver, Dice(policy))
    for data in script:
        driver.act(Dice(data))
    driver.come_to_rest()

"""What attackers found by reading is found again when its fix is taken out: by what, of each."""

from __future__ import annotations

from typing import Final

import pytest

from tests.acceptance.mutants.patches import CHECKOUT, all_patches
from tests.world.planted import BUGS

FAULTS: Final = {
    "1 release mark of an earlier attempt": "release-mark-from-before-the-admission",
    "2 pods of another namespace": "a-pod-of-any-namespace-is-believed",
    "3 claims that grow": "a-template-may-grow-while-its-workload-runs",
    "4 objects that the gate lets past by their label": "tests/acceptance/gate/test_default_queue.py",
    "5 quota of a kind that is gone": "quota-of-a-kind-that-is-gone-stays",
    "6 discovery that fails at a start": "discovery-that-failed-is-not-asked-again",
    "7 a body that never comes": "a-body-that-never-comes-is-waited-for",
    "8 an object quoted with the UID of another": "a-quoted-object-stands-for-another",
    "9 a victim that never ends": "late-victim-is-waited-for",
    "10 a claim that many pods share": "all-pods-of-a-shared-claim-are-counted-again",
    "11 a trial without an end": "a-trial-goes-on-without-end",
    "12 a gate without a binding": "a-gate-without-a-binding-is-in-force",
    "13 a sum that no row holds": "a-sum-with-overhead-is-not-cut",
    "14 policy that is never dropped": "ended-revisions-are-never-dropped",
    "15 a template that is replaced": "devices-follow-a-template-that-is-replaced",
    "16 statuses that starve": "statuses of unchanged conditions starve",
    "17 an earlier state before rights": "an-earlier-state-is-read-without-a-right",
    "18 scans on the event loop": "benchmarks/loop_holds.py",
    "19 ids of messages after a restore": "a-restored-ledger-repeats-ids-of-messages",
    "20 pods of the Node before": "a-node-made-again-runs-the-pods-of-the-former-one",
    "21 migrations that lock tables": "tests/integration/ledger/test_migrations.py",
    "N0 a ledger that is restored": "restored-ledger-keeps-the-old-attempt",
    "N1 started again after its stop": "started-again-after-its-stop",
}
"""Of each a planted bug that reverts the fix, by its name here or in `tests.world.planted`. Where none can be
planted in the code (an expression of a policy, a cost, a lock), the file of what measures it."""


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_was_found_by_reading_has_its_planted_bug_or_its_test(fault: str) -> None:
    guard = FAULTS[fault]
    planted = {patch.name for patch in all_patches()} | {bug.name for bug in BUGS}
    assert guard in planted or (CHECKOUT / guard).is_file()

"""Laws about what other clients do to the objects, and about ledgers that are restored from older dumps (L30,
L31): within a bound of plans the ledger says what runs, and what is to stop has stopped."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core import profiles
from tests.unit.core.other_clients import OtherClients
from tests.unit.core.trees import Dice

profiles.load()


@profiles.sequences(1000)
@given(st.integers(0, 2**32), st.integers(1, 40))
def test_whatever_other_clients_do_the_ledger_says_what_runs_within_a_bound(seed: int, actions: int) -> None:
    cluster, dice = OtherClients(), Dice(random.Random(seed).randbytes(8 * actions))
    for _ in range(actions):
        cluster.act(dice)
    cluster.come_to_rest()
    cluster.check_that_the_ledger_says_what_runs()

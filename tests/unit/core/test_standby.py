"""A process that stands by follows ledger and cluster: when it takes over it decides as a new one does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from itertools import zip_longest
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuectl.core.decisions import Plan
from queuectl.core.engine import Engine
from queuectl.core.model.device_use import UseFinding, UseVerdict
from queuectl.core.model.events import DeviceUseFound, EffectSettled, Event, PodsCounted, TimeCame
from queuectl.core.model.workload import LedgerSnapshot
from tests.builders import SETTINGS, SOURCES, T0, flavor, local_queue, queue, workload
from tests.unit.core import laws, profiles
from tests.unit.core.actions import (
    JOBS,
    ON_NODES,
    ON_QUOTA,
    SCRIPT,
    SCRIPT_ON_NODES,
    SETUP,
    any_of,
    other_clients,
    play,
)
from tests.unit.core.driver import Action, Driver, wait_for
from tests.unit.core.plans import meaning
from tests.unit.core.test_laws import SHARED
from tests.unit.core.trees import Dice, Setup, random_setup, setup_on_nodes

NO_PLAN = Plan(version=0, cycle=0, now=T0)
ANSWERS = EffectSettled | PodsCounted | DeviceUseFound
"""What only the leader asks for."""


class Pair(Driver):
    """The leader, and a process that stands by: it sees what the leader reads, not what that is answered."""

    standby: Engine | None = None
    known: LedgerSnapshot

    def start(self) -> None:
        self.standby = None
        super().start()
        self.standby, self.known = Engine(SOURCES, self.setup.settings), self.loaded()
        self.standby.restore(self.known)
        self.standby.handle(self.everything())

    def fold(self, events: list[Event]) -> None:
        super().fold(events)
        if self.standby is not None:
            self.standby.handle(one for one in events if not isinstance(one, ANSWERS))

    def follow(self) -> Engine:
        engine, before, self.known = self.standby, self.known, self.loaded()
        assert engine is not None
        engine.follow(before, self.known)
        if self.known.now is not None:
            engine.handle([TimeCame(self.known.now)])
        self.check(engine)
        return engine

    def take_over(self) -> None:
        self.epoch = wait_for(self.ledger.take_epoch("standby"))
        engine = self.follow()
        engine.list_again()
        assert not engine.decide(self.now).decisions
        engine.handle(self.everything())
        self._tell_time(engine)
        self._compare(engine.fork(), self.fresh())
        self.start()
        self.engine = engine
        self.take_effects()

    def _compare(self, ours: Engine, theirs: Engine) -> None:
        assert ours.unacknowledged() == theirs.unacknowledged()
        if not self.jobs.keys() <= self.ledger.store.workloads.keys():
            return  # what the ledger does not have yet is in the order of its first observation (O2)
        for our, their in zip_longest(self.plans_of(ours), self.plans_of(theirs), fillvalue=NO_PLAN):
            assert (meaning(our) - meaning(their), meaning(their) - meaning(our)) == (Counter(), Counter())


def follow(driver: Driver, _: Dice) -> None:
    assert isinstance(driver, Pair)
    driver.follow()


def take_over(driver: Driver, _: Dice) -> None:
    assert isinstance(driver, Pair)
    driver.take_over()


TABLES: dict[str, tuple[Callable[[Dice], Setup], Action]] = {
    "quota": (random_setup, ON_QUOTA),
    "nodes": (setup_on_nodes, ON_NODES),
}


@pytest.mark.parametrize("name", TABLES)
def test_one_that_took_over_decides_as_a_new_process(name: str) -> None:
    setup_of, table = TABLES[name]
    acts = any_of(table, table, table, follow, take_over)

    def sequence(setup: bytes, jobs: list[bytes], script: list[bytes]) -> None:
        driver = Pair(setup_of(Dice(setup)), laws.a_new_process_decides_nothing, actions=acts)
        play(driver, jobs, script)
        driver.take_over()
        driver.come_to_rest()

    sequence.__name__ = name
    script = SCRIPT_ON_NODES if name == "nodes" else SCRIPT
    profiles.sequences(150)(given(SETUP, JOBS, script)(sequence))()


@profiles.sequences(300)
@given(st.integers(0, 2**32), st.integers(1, 40))
def test_one_that_took_over_says_what_runs_whatever_other_clients_do(seed: int, number: int) -> None:
    dice = Dice(Random(seed).randbytes(8 * number))
    acts = any_of(*[other_clients()] * 4, follow, take_over)
    checked = (laws.live_pods_are_charged, laws.the_ledger_says_what_runs)
    driver = Pair(SHARED, *checked, actions=acts, prompt=False)
    for _ in range(number):
        driver.act(dice)
    driver.take_over()
    driver.come_to_rest()


def test_what_the_leader_has_found_of_devices_holds_for_a_while_after_a_takeover() -> None:
    setup = Setup((flavor("default"), queue("cq", 4), local_queue("lq", "cq")), SETTINGS)
    driver = Pair(setup)
    driver.submit(one := workload("a", gpus=4))
    driver.deliver()
    driver.decide_all()
    for _ in range(3):
        driver.now += timedelta(minutes=50)
        until = driver.now + timedelta(hours=1)
        idle = UseFinding(UseVerdict.IDLE, 4, 4, 1.0, 0.0001, 0.0)
        driver.fold([DeviceUseFound(one.id, 1, idle, driver.now, until), TimeCame(driver.now)])
        driver.decide_all()
        driver.commit(Plan(version=0, cycle=0, now=driver.now))
        driver.follow()
    driver.take_over()
    [known] = driver.loaded().workloads
    assert known.past.use is not None
    driver.now += timedelta(minutes=50)
    assert not driver.decide()
    driver.now += timedelta(minutes=11)
    assert driver.decide(), "what no check has confirmed is unknown after an hour"

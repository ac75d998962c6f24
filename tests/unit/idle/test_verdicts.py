"""Verdicts from samples: the thresholds, what is missing, and gangs."""

from __future__ import annotations

import pytest

from queuectl.core.model.device_use import UseVerdict
from queuectl.idle.verdicts import DeviceSamples, finding_of
from queuectl.settings.idle import IdleSettings

RULES = IdleSettings()
WHOLE, OF_HANG = 60, 20
"""Samples that the windows have."""
BUSY = DeviceSamples(0.6, WHOLE, 0.6, OF_HANG, 0.5)
IDLE = DeviceSamples(0.0001, WHOLE, 0.0001, OF_HANG, 0.0)
HANG = DeviceSamples(1.0, WHOLE, 1.0, OF_HANG, 0.008, 0.0, 0.0, 125.0)
BLANK = 9223372036854775794.0


def verdict(*found: DeviceSamples, devices: int = 1) -> UseVerdict:
    return finding_of(devices, found, RULES).verdict


@pytest.mark.parametrize(
    ("engine", "expected"),
    [
        (0.0, UseVerdict.IDLE),
        (0.00029, UseVerdict.IDLE),
        (0.0003, UseVerdict.SPARSE),
        (0.0099, UseVerdict.SPARSE),
        (0.01, UseVerdict.BUSY),
        (1.0, UseVerdict.BUSY),
        (None, UseVerdict.UNKNOWN),
        (BLANK, UseVerdict.UNKNOWN),
        (-1.0, UseVerdict.UNKNOWN),
    ],
)
def test_the_mean_activity_of_the_engine_decides(engine: float | None, expected: UseVerdict) -> None:
    assert verdict(DeviceSamples(engine, WHOLE)) is expected


@pytest.mark.parametrize(("samples", "expected"), [(53, "Unknown"), (54, "Idle"), (60, "Idle"), (99, "Idle")])
def test_a_device_with_a_tenth_of_its_samples_missing_is_not_idle(samples: int, expected: str) -> None:
    """So is a pod that has run for less than the window."""
    assert verdict(IDLE._replace(samples=samples)) == expected


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (HANG, UseVerdict.HANG),
        (HANG._replace(multiprocessors=0.06), UseVerdict.BUSY),
        (HANG._replace(hang_engine=0.9), UseVerdict.BUSY),
        (HANG._replace(hang_samples=17), UseVerdict.BUSY),
        (HANG._replace(samples=20), UseVerdict.HANG),
        (HANG._replace(multiprocessors=None), UseVerdict.HANG),
        (HANG._replace(multiprocessors=BLANK), UseVerdict.HANG),
        (HANG._replace(multiprocessors=None, watts=402.0, memory=0.9), UseVerdict.BUSY),
        (HANG._replace(multiprocessors=None, watts=200.0), UseVerdict.BUSY),
        (HANG._replace(multiprocessors=None, tensor=None), UseVerdict.BUSY),
        (HANG._replace(multiprocessors=None, watts=None), UseVerdict.BUSY),
    ],
)
def test_a_hang_is_an_active_engine_whose_multiprocessors_are_not(
    found: DeviceSamples, expected: UseVerdict
) -> None:
    assert verdict(found) is expected


@pytest.mark.parametrize(
    ("devices", "found", "expected", "idle"),
    [
        (8, [BUSY, *[IDLE] * 7], UseVerdict.BUSY, 7),
        (8, [IDLE] * 8, UseVerdict.IDLE, 8),
        (8, [IDLE] * 7, UseVerdict.UNKNOWN, 0),
        (8, [BUSY], UseVerdict.BUSY, 0),
        (8, [*[IDLE] * 7, IDLE._replace(samples=10)], UseVerdict.UNKNOWN, 0),
        (2, [IDLE, IDLE._replace(engine=0.001)], UseVerdict.SPARSE, 1),
        (2, [HANG, HANG], UseVerdict.HANG, 2),
        (2, [HANG, BUSY], UseVerdict.BUSY, 1),
        (2, [HANG, IDLE], UseVerdict.UNKNOWN, 2),
        (2, [], UseVerdict.UNKNOWN, 0),
        (1, [IDLE, IDLE], UseVerdict.IDLE, 1),
    ],
)
def test_a_gang_is_idle_only_if_every_device_that_it_holds_is(
    devices: int, found: list[DeviceSamples], expected: UseVerdict, idle: int
) -> None:
    told = finding_of(devices, found, RULES)
    assert (told.verdict, told.idle_devices, told.devices) == (expected, idle, devices)


def test_a_finding_has_what_it_was_found_by() -> None:
    told = finding_of(2, [BUSY, IDLE._replace(samples=57)], RULES)
    assert (told.coverage, told.multiprocessors) == (0.95, 0.25)
    assert told.engine == pytest.approx(0.30005)
    assert finding_of(2, [BUSY], RULES).coverage == 0
    assert finding_of(1, [BUSY._replace(engine=None)], RULES).engine is None

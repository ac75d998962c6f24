"""The kinds that need no configuration. Only `app` reads this table: all else is handed a registry."""

from __future__ import annotations

from typing import Final

from queuectl.kinds.app_wrapper import app_wrapper
from queuectl.kinds.batch_job import JOB
from queuectl.kinds.jobs import KindRegistry
from queuectl.kinds.jobset import JOB_SET
from queuectl.kinds.kubeflow import MPI_JOB, MPI_JOB_V1, TRAINING
from queuectl.kinds.pod_group import POD_GROUP
from queuectl.kinds.ray import RAY_CLUSTER, RAY_JOB, RAY_SERVICE
from queuectl.kinds.single_pod import POD
from queuectl.kinds.spark import SPARK_APPLICATION
from queuectl.kinds.train_job import TRAIN_JOB

_ROWS: Final = (
    JOB,
    *TRAINING,
    MPI_JOB,
    MPI_JOB_V1,
    JOB_SET,
    TRAIN_JOB,
    SPARK_APPLICATION,
    RAY_JOB,
    RAY_CLUSTER,
    RAY_SERVICE,
)
OPTIONAL: Final = KindRegistry((POD, POD_GROUP))
"""Kinds that queue where the configuration names them: `kinds: [Pod]`, which has groups of pods with it."""
BUILT_IN: Final = KindRegistry((*_ROWS, app_wrapper(_ROWS)))

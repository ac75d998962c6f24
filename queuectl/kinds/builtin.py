"""The kinds that need no configuration. Only `app` reads this table: all else is handed a registry."""

from __future__ import annotations

from typing import Final

from queuectl.kinds.batch_job import JOB
from queuectl.kinds.jobset import JOB_SET
from queuectl.kinds.kubeflow import MPI_JOB, MPI_JOB_V1, TRAINING
from queuectl.kinds.registry import KindRegistry

BUILT_IN: Final = KindRegistry((JOB, *TRAINING, MPI_JOB, MPI_JOB_V1, JOB_SET))

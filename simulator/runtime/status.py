"""Status codes of the runtime, and the exceptions that carry them.

Codes are those of the SDK's public header nrt_status.h and of neuron-runtime/nrt-troubleshoot.rst;
classes and texts those of neuron-runtime/nrtpy/errors.rst.
"""

from __future__ import annotations

from enum import IntEnum

from isa.errors import NeuronError


class Status(IntEnum):
    """What the runtime returns. The comment behind some says when this runtime does."""

    NRT_SUCCESS = 0
    NRT_FAILURE = 1  # no such file
    NRT_INVALID = 2  # a container or tensor that does not fit
    NRT_INVALID_HANDLE = 3
    NRT_RESOURCE = 4  # no room in HBM
    NRT_TIMEOUT = 5  # streams that wait for ever, limits of a run
    NRT_HW_ERROR = 6
    NRT_QUEUE_FULL = 7
    NRT_LOAD_NOT_ENOUGH_NC = 9  # a core that is not visible
    NRT_UNSUPPORTED_NEFF_VERSION = 10  # a container of another version
    NRT_FAIL_HOST_MEM_ALLOC = 11
    NRT_UNINITIALIZED = 13
    NRT_CLOSED = 14
    NRT_QUEUE_EMPTY = 15
    NRT_EXEC_UNIT_UNRECOVERABLE = 101
    NRT_EXEC_BAD_INPUT = 1002
    NRT_EXEC_COMPLETED_WITH_NUM_ERR = 1003
    NRT_EXEC_COMPLETED_WITH_ERR = 1004  # any other error of a run
    NRT_EXEC_NC_BUSY = 1005
    NRT_EXEC_OOB = 1006  # an index outside of its tensor
    NRT_COLL_PENDING = 1100
    NRT_EXEC_HW_ERR_COLLECTIVES = 1200  # a rank that does not come
    NRT_EXEC_HW_ERR_HBM_UE = 1201
    NRT_EXEC_HW_ERR_NC_UE = 1202
    NRT_EXEC_HW_ERR_DMA_ABORT = 1203
    NRT_EXEC_SW_NQ_OVERFLOW = 1204
    NRT_EXEC_HW_ERR_REPAIRABLE_HBM_UE = 1205
    NRT_NETWORK_PROXY_FAILURE = 1206


class NrtpyError(RuntimeError):
    """Misuse that the Python layer sees: a tensor that was freed, a runtime that was closed."""


class NrtError(RuntimeError):
    """A status of the runtime that is no success; its notes say what was wrong.

    >>> error = NrtError(Status.NRT_FAILURE, "Failed to load model")
    >>> print(error, error.status_code.value)
    NRT Error NRT_FAILURE(1): Failed to load model 1
    """

    def __init__(self, status: Status, text: str, *notes: str) -> None:
        super().__init__(f"NRT Error {status.name}({status.value}): {text}")
        self.status_code = status
        for note in notes:
            self.add_note(note)


_WAITS = "deadlock"

_OF_ERRORS = {
    "file-not-found": Status.NRT_FAILURE,
    "container-version": Status.NRT_UNSUPPORTED_NEFF_VERSION,
    "hbm-overflow": Status.NRT_RESOURCE,
    "memory-limit": Status.NRT_RESOURCE,
    "dynamic-out-of-bounds": Status.NRT_EXEC_OOB,
    _WAITS: Status.NRT_TIMEOUT,
    "loop-limit": Status.NRT_TIMEOUT,
    "time-limit": Status.NRT_TIMEOUT,
    "simulated-time-limit": Status.NRT_TIMEOUT,
}
"""The status of errors of the catalogue, by code."""


def load_error(error: NeuronError) -> NrtError:
    """What loading a container ends with."""
    status = _OF_ERRORS.get(error.code, Status.NRT_INVALID)
    return NrtError(status, "Failed to load model", str(error))


def run_error(error: NeuronError, ranks: int = 1) -> NrtError:
    """What running a program ends with, on one of several ranks: who waits, waits for another."""
    if ranks > 1 and error.code == _WAITS:
        status = Status.NRT_EXEC_HW_ERR_COLLECTIVES
        return NrtError(status, "Failed to execute model", str(error))
    status = _OF_ERRORS.get(error.code, Status.NRT_EXEC_COMPLETED_WITH_ERR)
    return NrtError(status, "Failed to execute model", str(error))

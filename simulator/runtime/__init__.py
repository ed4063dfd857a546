"""A runtime for containers: a device that programs are loaded on, tensors in its memory, status
codes. `nrtpy` has the names of the SDK's Python binding, so that a script runs with another
import: `from simulator.runtime.nrtpy import NrtpyModel, NrtpyTensor`. `status.py` has the codes,
`device.py` what is allocated and loaded, `visible_cores.py` the environment.
"""

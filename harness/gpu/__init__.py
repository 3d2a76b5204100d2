"""The GPU: facts, NVML, loading, launching, locking, and the worker process that does all device work.

Only modules of this package import CuPy and pynvml, and only inside functions; importing any of them needs
neither.
"""

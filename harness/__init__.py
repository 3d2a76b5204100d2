"""The harness: how kernels are built, proved, timed, recorded and explained. It knows no study by name."""

__version__ = "0.1.0"

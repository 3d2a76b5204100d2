"""Two record files, case by case: what matched, what got slower, what is only in one of them."""

from harness.compare.comparing import compare
from harness.compare.values import ComparedRow, Comparison, Metric

__all__ = ["ComparedRow", "Comparison", "Metric", "compare"]

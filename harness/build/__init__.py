"""Rendered text -> cubin -> inspected build. No CuPy, no driver: runs on any machine that has the wheels."""

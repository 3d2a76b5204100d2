"""A cubin on disk -> a kernel that can be launched, with what the driver says of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.advice import driver_advice
from harness.errors import AblationError, LaunchError, NotSupportedError
from harness.gpu.commands import Entry, Loaded
from harness.gpu.facts import GpuFacts
from harness.gpu.faults import as_fault, cuda_name, cuda_status, is_sticky


def load(entry: Entry, facts: GpuFacts, *, copy: int = 0) -> tuple[Any, Loaded]:
    """Load `entry`'s kernel; the shared memory it may ask for is always opted into.

    Args:
        copy: loads of the same file with different numbers are separate modules.

    Raises:
        LaunchError: the file is missing, or the driver refuses it (StickyError when the context is lost with
        it).
        NotSupportedError: one CTA does not fit on an SM; the message holds both numbers.
    """
    import cupy

    if not Path(entry.cubin_path).is_file():
        raise LaunchError(f"{entry.id}: there is no cubin at {entry.cubin_path}")
    try:
        module = cupy.RawModule(path=aliased(entry.cubin_path, copy))
        kernel = module.get_function(entry.kernel)
        static_bytes = int(kernel.shared_size_bytes)
        dynamic_bytes = max(entry.dynamic_bytes, entry.run.launch.shared_bytes)
        most = _most_shared()
        refuse_too_much_shared(entry.id, static_bytes, dynamic_bytes, most)
        kernel.max_dynamic_shared_size_bytes = dynamic_bytes
        block = entry.run.launch.block
        occupancy = cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor
        loaded = Loaded(
            registers=int(kernel.num_regs),
            local_bytes=int(kernel.local_size_bytes),
            shared_bytes=static_bytes,
            dynamic_bytes=dynamic_bytes,
            max_threads=int(kernel.max_threads_per_block),
            binary_version=int(kernel.binary_version),
            ctas_per_sm=int(occupancy(kernel.kernel.ptr, block, dynamic_bytes)),
        )
    except AblationError:
        raise
    except Exception as error:
        raise load_fault(error, entry, facts) from error
    refuse_unlaunchable(entry.id, loaded, block)
    return kernel, loaded


def aliased(path: str, copy: int) -> str:
    """Another spelling of the same absolute path: CuPy loads each spelling once per process and device."""
    file = Path(path).resolve()
    return f"{file.parent}/{'./' * copy}{file.name}"


def refuse_too_much_shared(entry_id: str, static_bytes: int, dynamic_bytes: int, most: int) -> None:
    """NotSupportedError when static and dynamic shared memory together exceed what a CTA may have."""
    if static_bytes + dynamic_bytes > most:
        raise NotSupportedError(
            f"{entry_id}: one CTA needs {static_bytes + dynamic_bytes} bytes of shared memory "
            f"({static_bytes} static), this GPU allows {most}"
        )


def refuse_unlaunchable(entry_id: str, loaded: Loaded, block: int) -> None:
    """NotSupportedError when the driver says that not even one CTA of `block` threads can be resident."""
    if block > loaded.max_threads:
        raise NotSupportedError(
            f"{entry_id}: a CTA has {block} threads, with {loaded.registers} registers the kernel may have "
            f"{loaded.max_threads}"
        )
    if loaded.ctas_per_sm < 1:
        raise NotSupportedError(
            f"{entry_id}: no CTA fits on an SM: {block} threads of {loaded.registers} registers, "
            f"{loaded.shared_bytes + loaded.dynamic_bytes} bytes of shared memory"
        )


def load_fault(error: Exception, entry: Entry, facts: GpuFacts) -> Exception:
    """The typed error for a refused cubin: what the driver said, then what to change, with the numbers."""
    status = cuda_status(error)
    if status is None or is_sticky(status):
        return as_fault(error, f"{entry.id}: loading {entry.kernel}")
    name = cuda_name(error)
    advice = driver_advice(facts.driver, facts.cuda_driver, entry.toolkit, facts.cc, entry.arch, name)
    return LaunchError(
        f"{entry.id}: the driver refused the cubin: {advice}", detail=f"{entry.cubin_path}: {error}"
    )


def _most_shared() -> int:
    """Shared memory that one CTA may have after opting in, in bytes."""
    from cupy.cuda import runtime

    attribute = runtime.cudaDevAttrMaxSharedMemoryPerBlockOptin
    return int(runtime.deviceGetAttribute(attribute, runtime.getDevice()))

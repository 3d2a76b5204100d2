"""What NVML says of the GPU that is timed: power, temperature, throttle reasons, reported clock, who else
uses it.

The device is found by the PCI bus id or UUID of the CUDA device, never by index: NVML does not know
CUDA_VISIBLE_DEVICES. NVML absent or refusing leaves fields None: unknown is neither an error nor zero.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

BUSY_UTILISATION = 10  # percent
CLOCK_SM = 1
CLOCK_GRAPHICS = 0
SENSOR_GPU = 0
APPLICATIONS_CLOCKS = 0x2
REASONS = {
    0x1: "gpu_idle",
    APPLICATIONS_CLOCKS: "applications_clocks",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake",
    0x100: "display_clocks",
    0x200: "board_limit",
    0x400: "reliability",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuState:
    """One look at the GPU. `utilisation` in percent over NVML's own last window; `processes` are compute
    pids."""

    watts: float | None = None
    temperature_c: int | None = None
    throttle: tuple[str, ...] | None = None
    reported_hz: float | None = None
    utilisation: int | None = None
    processes: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardFacts:
    """What does not change during a run; `max_sm_hz` is the reported maximum, not a clock that was ever
    seen."""

    uuid: str | None = None
    driver: str | None = None
    ecc: bool | None = None
    mig: bool | None = None
    persistence: bool | None = None
    power_limit_w: float | None = None
    max_sm_hz: float | None = None
    clocks_locked: bool | None = None


class Nvml:
    """NVML for one physical GPU. Without a handle every question is answered with None."""

    def __init__(self, module: Any = None, handle: Any = None) -> None:
        self._module = module
        self._handle = handle

    @property
    def found(self) -> bool:
        """Whether the GPU was matched."""
        return self._handle is not None

    def sample(self) -> GpuState:
        """Power, temperature, throttle reasons and clock now; cheap enough for every round."""
        milliwatts = self._ask("nvmlDeviceGetPowerUsage")
        return GpuState(
            watts=milliwatts / 1000 if milliwatts else None,
            temperature_c=self._ask("nvmlDeviceGetTemperature", SENSOR_GPU),
            throttle=decode_reasons(self._reasons()),
            reported_hz=_hertz(self._ask("nvmlDeviceGetClockInfo", CLOCK_SM)),
        )

    def load(self) -> GpuState:
        """Who uses the GPU: compute processes and utilisation. Slower; asked before a run, not during one."""
        rates = self._ask("nvmlDeviceGetUtilizationRates")
        running = self._ask("nvmlDeviceGetComputeRunningProcesses")
        return GpuState(
            utilisation=int(rates.gpu) if rates is not None else None,
            processes=tuple(int(process.pid) for process in running) if running is not None else None,
        )

    def facts(self) -> BoardFacts:
        """The board's settings; each None where NVML does not say."""
        limit = self._ask("nvmlDeviceGetEnforcedPowerLimit") or self._ask("nvmlDeviceGetPowerManagementLimit")
        return BoardFacts(
            uuid=_text(self._ask("nvmlDeviceGetUUID")),
            driver=_text(_ask(self._module, "nvmlSystemGetDriverVersion")) if self._module else None,
            ecc=_first_flag(self._ask("nvmlDeviceGetEccMode")),
            mig=_first_flag(self._ask("nvmlDeviceGetMigMode")),
            persistence=_flag(self._ask("nvmlDeviceGetPersistenceMode")),
            power_limit_w=limit / 1000 if limit else None,
            max_sm_hz=_hertz(self._ask("nvmlDeviceGetMaxClockInfo", CLOCK_SM)),
            clocks_locked=self._clocks_locked(),
        )

    def _clocks_locked(self) -> bool | None:
        """True on evidence of a clock setting. NVML cannot read a lock back, so its absence stays unknown."""
        reasons = self._reasons()
        if reasons is not None and reasons & APPLICATIONS_CLOCKS:
            return True
        wanted = self._ask("nvmlDeviceGetApplicationsClock", CLOCK_GRAPHICS)
        default = self._ask("nvmlDeviceGetDefaultApplicationsClock", CLOCK_GRAPHICS)
        return True if wanted and default and wanted != default else None

    def _reasons(self) -> int | None:
        mask = self._ask("nvmlDeviceGetCurrentClocksEventReasons")
        if mask is None:
            mask = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons")
        return None if mask is None else int(mask)

    def _ask(self, name: str, *arguments: Any) -> Any:
        return _ask(self._module, name, self._handle, *arguments) if self.found else None


def open_nvml(pci: str | None, uuid: str | None, *, module: Any = None) -> Nvml:
    """NVML for the GPU with this PCI bus id, else this UUID ("GPU-…" or "MIG-…"); unmatched when neither is
    known to it.

    A MIG device leads to its parent: clocks, power and temperature belong to the whole GPU. Never raises.
    """
    module = module or _load()
    if module is None:
        return Nvml()
    handle = _ask(module, "nvmlDeviceGetHandleByPciBusId", pci) if pci else None
    if handle is None and uuid:
        handle = _ask(module, "nvmlDeviceGetHandleByUUID", uuid)
        if handle is not None and _ask(module, "nvmlDeviceIsMigDeviceHandle", handle):
            handle = _ask(module, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", handle)
    return Nvml(module, handle)


def decode_reasons(mask: int | None) -> tuple[str, ...] | None:
    """Names of the set bits, unknown bits as bit_0x800; () when nothing holds the clock back, None when
    unknown."""
    if mask is None:
        return None
    bits = [1 << i for i in range(mask.bit_length()) if mask >> i & 1]
    return tuple(REASONS.get(bit, f"bit_{bit:#x}") for bit in bits)


def strangers(listed: Collection[int], own: Collection[int], before: Collection[int]) -> tuple[int, ...]:
    """The listed pids that are not ours.

    In a container NVML may list us under a pid that we do not know. So when we have a worker and no pid of
    ours is listed, one pid that was not there before the worker started is taken to be it.
    """
    others = [pid for pid in listed if pid not in own]
    if own and len(others) == len(listed):
        newcomer = next((pid for pid in others if pid not in before), None)
        others = [pid for pid in others if pid != newcomer]
    return tuple(others)


def busy_reason(state: GpuState, own: Collection[int] = (), before: Collection[int] = ()) -> str | None:
    """Why the GPU is too busy to be timed, or None. What NVML does not say is not held against it.

    Args:
        own: pids of ours that may use the GPU; empty before there is a worker.
        before: the pids that were listed before we had one.
    """
    others = strangers(state.processes or (), own, before)
    if others:
        return f"other processes use the GPU: pid {', '.join(map(str, others))}"
    if state.utilisation is not None and state.utilisation > BUSY_UTILISATION:
        return f"the GPU is {state.utilisation} % busy (at most {BUSY_UTILISATION} % is let pass)"
    return None


def wait_idle(
    ask: Callable[[], str | None], *, seconds: float = 3.0, sleep: Callable[[float], None] = time.sleep
) -> str | None:
    """Ask for a busy reason until there is none; the last one when there is one for `seconds`.

    Utilisation looks back over about a second, so that a run that has just ended must not refuse the next.
    """
    step = 0.25
    reason = ask()
    while reason and seconds > 0:
        sleep(step)
        seconds -= step
        reason = ask()
    return reason


def _load() -> Any:
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # no library, no driver, no permission: all of them mean that NVML says nothing
        return None
    return pynvml


def _ask(module: Any, name: str, *arguments: Any) -> Any:
    try:
        return getattr(module, name)(*arguments)
    except Exception:  # not supported, no permission, an older library: unknown
        return None


def _text(value: Any) -> str | None:
    return value.decode() if isinstance(value, bytes) else value


def _flag(value: Any) -> bool | None:
    return None if value is None else bool(value)


def _first_flag(pair: Any) -> bool | None:
    """The current of NVML's (current, pending) pair."""
    return _flag(pair[0]) if pair else None


def _hertz(megahertz: Any) -> float | None:
    return megahertz * 1e6 if megahertz else None

"""What to change when the driver refuses a kernel, with every number that decides it."""

from __future__ import annotations

import pytest
from fake_gpu import CUDARuntimeError, entry, facts
from hypothesis import given
from hypothesis import strategies as st

from harness.advice import driver_advice, is_behind, update_driver
from harness.errors import LaunchError
from harness.gpu.load import load_fault

WORDS = st.text(st.characters(codec="ascii", categories=("L", "N", "P", "Zs")), max_size=200)
NUMBERS = ("550.54", "12.4", "13.0", "8.9", "sm_120")


# C29
def advice(error: str, target: str = "sm_120", cc: tuple[int, int] | None = (8, 9)) -> str:
    return driver_advice("550.54", "12.4", "13.0", cc, target, error)


def test_the_two_refusals_of_an_old_driver_get_two_messages_with_all_numbers() -> None:
    ptx, binary = advice("CUDA_ERROR_UNSUPPORTED_PTX_VERSION"), advice("CUDA_ERROR_NO_BINARY_FOR_GPU")
    for message in (ptx, binary):
        assert all(number in message for number in NUMBERS)
        assert "\n" not in message
    assert "update the driver to one for CUDA 13" in ptx and "wheels for CUDA 12" in ptx
    assert "does not run on this GPU: compile for sm_89" in binary
    assert "update the driver" not in binary


@pytest.mark.parametrize(
    ("target", "cc", "words"),
    [
        ("sm_90a", (9, 0), "fits the GPU, so the driver is too old"),
        ("sm_80", (8, 9), "fits the GPU"),
        ("sm_120f", (12, 1), "fits the GPU"),
        ("sm_120a", (12, 1), "compile for sm_121a"),
        ("sm_89", (8, 6), "compile for sm_86"),
        ("sm_100a", (9, 0), "compile for sm_90a"),
        ("nonsense", (9, 0), "compile for sm_90a"),
        ("sm_80", (7, 5), "does not support this GPU"),
        ("sm_80", (19, 3), "does not support this GPU"),
        ("sm_80", None, "compile for the one at hand"),
    ],
)
def test_a_missing_binary_is_the_targets_or_the_drivers_fault(
    target: str, cc: tuple[int, int] | None, words: str
) -> None:
    assert words in advice("cudaErrorNoKernelImageForDevice", target, cc)


@given(
    st.none() | WORDS,
    st.none() | WORDS,
    st.none() | WORDS,
    st.none() | st.tuples(st.integers(0, 99), st.integers(0, 9)),
    st.text(max_size=9),
    st.sampled_from(
        [
            "CUDA_ERROR_NO_BINARY_FOR_GPU",
            "cudaErrorUnsupportedPtxVersion",
            "cudaErrorInvalidPtx",
            "cudaErrorInsufficientDriver",
            "CUDA_ERROR_INVALID_IMAGE",
            "?",
        ]
    ),
)
def test_advice_is_given_whatever_is_unknown(
    driver: str | None,
    level: str | None,
    nvrtc: str | None,
    cc: tuple[int, int] | None,
    target: str,
    error: str,
) -> None:
    message = driver_advice(driver, level, nvrtc, cc, target, error)
    assert message.startswith(error + ": ")
    assert "None" not in message.replace(target, "")


@pytest.mark.parametrize(
    "name",
    [
        "CUDA_ERROR_INVALID_IMAGE",
        "cudaErrorInvalidKernelImage",
        "CUDA_ERROR_INVALID_SOURCE",
        "cudaErrorFileNotFound",
        "CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND",
    ],
)
def test_a_file_that_the_driver_cannot_read_is_built_again(name: str) -> None:
    message = advice(name)
    assert "build it again" in message and "update the driver" not in message
    assert all(number in message for number in NUMBERS)


def test_an_unknown_refusal_still_has_all_numbers() -> None:
    message = advice("CUDA_ERROR_SOMETHING")
    assert "`ablate doctor`" in message and all(number in message for number in NUMBERS)


@pytest.mark.parametrize(
    ("cuda_level", "nvrtc", "words"),
    [
        ("12.4", "13.0.88", "one for CUDA 13, 580.65 or newer, or install the wheels for CUDA 12"),
        ("13.0", "13.5.37", "update the driver to one for CUDA 13.5"),
        ("13.5", "13.5.37", "update the driver to the newest there is"),
        ("13.5", "12.9", "update the driver to the newest there is"),
        ("12.4", "99.0", "one for CUDA 99, or install the wheels for CUDA 12"),
        (None, "13.0", "one for CUDA 13, 580.65 or newer"),
        ("12.4", None, "one for CUDA of that version"),
    ],
)
def test_no_driver_is_asked_for_that_is_older_than_the_one_here(
    cuda_level: str | None, nvrtc: str | None, words: str
) -> None:
    assert update_driver(nvrtc, cuda_level).endswith(words)


def test_only_a_driver_of_an_older_major_version_is_behind() -> None:
    assert is_behind("12.9", "13.0")
    assert not is_behind("13.0", "13.5.37")
    assert not is_behind("13.0", None)


@pytest.mark.parametrize(
    ("status", "text", "start", "words"),
    [
        (222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION: the PTX is new", "CUDA_ERROR_UNSUPPORTED_PTX", "older"),
        (218, "CUDA_ERROR_INVALID_PTX: a PTX JIT compilation failed", "CUDA_ERROR_INVALID_PTX", "translate"),
        (209, "CUDA_ERROR_NO_BINARY_FOR_GPU: no kernel image", "CUDA_ERROR_NO_BINARY", "compile for sm_89"),
        (209, "cudaErrorNoKernelImageForDevice: none", "cudaErrorNoKernelImage", "compile for sm_89"),
        (
            200,
            "CUDA_ERROR_INVALID_IMAGE: device kernel image is invalid",
            "CUDA_ERROR_INVALID",
            "build it again",
        ),
        (300, "CUDA_ERROR_INVALID_SOURCE: x", "CUDA_ERROR_INVALID_SOURCE", "build it again"),
        (301, "CUDA_ERROR_FILE_NOT_FOUND: x", "CUDA_ERROR_FILE", "build it again"),
        (302, "CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND: x", "CUDA_ERROR_SHARED", "build it again"),
        (2, "CUDA_ERROR_OUT_OF_MEMORY: out of memory", "CUDA_ERROR_OUT_OF_MEMORY", "`ablate doctor`"),
        (98, "words without a name", "CUDA error 98", "`ablate doctor`"),
    ],
)
def test_a_refused_cubin_is_told_with_the_drivers_words_and_all_numbers(
    status: int, text: str, start: str, words: str
) -> None:
    old = facts(driver="550.54", cuda_driver="12.4", cc=(8, 9))
    fault = load_fault(CUDARuntimeError(status, text), entry("full"), old)
    assert isinstance(fault, LaunchError)
    assert fault.message.startswith(f"full: the driver refused the cubin: {start}")
    assert words in fault.message and "\n" not in fault.message
    assert all(number in fault.message for number in ("550.54", "12.4", "13.5", "8.9", "sm_90a"))
    assert text in fault.detail and "k.cubin" in fault.detail

"""What a user would run instead: PyTorch's attention back ends, on the same inputs and the same stream.

Imported in the GPU worker only, and only where PyTorch is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any

from harness.model import Case, Values

PEERS = {
    "FlashAttention-2 (PyTorch)": "ablations._attention_peers:flash",
    "cuDNN (PyTorch)": "ablations._attention_peers:cudnn",
}


def peers(case: Case) -> Mapping[str, str]:
    """The back ends that compute what a full case computes; none where PyTorch is not installed."""
    full = case.levels["softmax"] == "full" and case.levels["acc_dtype"] == "f32"
    return PEERS if full and case.levels["accumulators"] == 1 and find_spec("torch") is not None else {}


def flash(case: Case, sizes: Values, inputs: Mapping[str, Any], stream: int) -> Callable[[], None]:
    """FlashAttention-2 as PyTorch ships it."""
    return _attention(case, sizes, inputs, stream, "FLASH_ATTENTION")


def cudnn(case: Case, sizes: Values, inputs: Mapping[str, Any], stream: int) -> Callable[[], None]:
    """cuDNN's attention through PyTorch."""
    return _attention(case, sizes, inputs, stream, "CUDNN_ATTENTION")


def _attention(
    case: Case, sizes: Values, inputs: Mapping[str, Any], stream: int, backend: str
) -> Callable[[], None]:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    shape = (
        sizes.number("batch"),
        sizes.number("heads"),
        sizes.number("seqlen"),
        case.levels.number("head_dim"),
    )
    dtype = torch.bfloat16 if case.levels["dtype"] == "bf16" else torch.float16
    elements = torch.Size(shape).numel()
    q, k, v = (torch.from_dlpack(inputs[n])[: 2 * elements].view(dtype).view(shape) for n in ("q", "k", "v"))
    shared = torch.cuda.ExternalStream(stream)

    def enqueue() -> None:
        with torch.cuda.stream(shared), sdpa_kernel([getattr(SDPBackend, backend)]), torch.no_grad():
            scaled_dot_product_attention(q, k, v)

    return enqueue

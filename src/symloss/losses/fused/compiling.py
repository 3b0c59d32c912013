"""Kernels compiled for a GPU that need not be there, and what they use of it."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import torch

from symloss.losses.fused.fused_kernel import FusedKernel
from symloss.losses.fused.source import ARGUMENTS, CONSTANTS

TARGETS = {"sm_80": ("cuda", 80, 32), "sm_90": ("cuda", 90, 32), "gfx942": ("hip", "gfx942", 64)}
"""GPUs by name: those of the A100, the H100 and the MI300. Each has a backend, an architecture and a warp size."""

_POINTERS = {torch.float32: "*fp32", torch.float16: "*fp16", torch.bfloat16: "*bf16"}


class Compiled(NamedTuple):
    """What a compiled kernel uses."""

    registers: int
    """The number of registers of each thread."""
    spilled: int
    """What does not fit into the registers of a thread: bytes, or for AMD the number of vector registers."""
    scalars_spilled: int
    """Scalar registers that AMD's compiler moved to lanes of vector registers. No memory is used for them."""
    shared: int
    """The number of bytes of shared memory of a program."""
    warps: int
    """The number of warps of a program."""
    assembly: str
    """The code: PTX, or that of AMD."""


def compile_for(kernel: FusedKernel, target: str, dtype: torch.dtype = torch.float32) -> Compiled:
    """Compile a kernel for a GPU.

    Args:
        kernel: the kernel. It must not be an interpreted one.
        target: a name in ``TARGETS``.
        dtype: the type of the scores.
    """
    import triton  # noqa: PLC0415
    from triton.backends.compiler import GPUTarget  # noqa: PLC0415

    if kernel.interpret:
        raise ValueError("an interpreted kernel cannot be compiled; build it with interpret=False")
    if target not in TARGETS:
        raise ValueError(f"target must be one of {', '.join(TARGETS)}; got {target!r}")
    device = GPUTarget(*TARGETS[target])
    score = _POINTERS[dtype]
    kinds = [score, "*i64", "*fp32", "*fp32", score, "i32", "i32", "i32", "i32"]
    signature = dict(zip(ARGUMENTS, kinds, strict=True)) | dict.fromkeys(CONSTANTS, "constexpr")
    # Tensors of torch are aligned, and so are their rows if the number of classes is a multiple of 16.
    aligned = [*range(5), *((6, 8) if kernel.classes % 16 == 0 else ())]
    attributes = {(number,): [["tt.divisibility", 16]] for number in aligned}
    code = triton.compiler.ASTSource(kernel.function, signature, kernel.constants, attributes)
    found = triton.compile(code, target=device, options=kernel.options(device.warp_size))
    return (_of_nvidia if device.backend == "cuda" else _of_amd)(found)


def _of_nvidia(found: Any) -> Compiled:
    import triton  # noqa: PLC0415

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(found.asm["cubin"])
        run = subprocess.run([tool, "--dump-resource-usage", path], capture_output=True, text=True, check=True)
    # A kernel has no arrays of its own, so what is on its stack was spilled.
    used = {name: int(number) for name, number in re.findall(r"(REG|STACK):(\d+)", run.stdout)}
    return Compiled(used["REG"], used["STACK"], 0, found.metadata.shared, found.metadata.num_warps, found.asm["ptx"])


def _of_amd(found: Any) -> Compiled:
    text = found.asm["amdgcn"]

    def number(name: str) -> int:
        match = re.search(rf"\.{name}:\s+(\d+)", text)
        assert match is not None
        return int(match[1])

    registers, spilled, scalars = map(number, ("vgpr_count", "vgpr_spill_count", "sgpr_spill_count"))
    return Compiled(registers, spilled, scalars, found.metadata.shared, found.metadata.num_warps, text)

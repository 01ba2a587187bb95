"""Tensors that are stored in a narrow type, read as bfloat16.

- FP8 with block scales (DeepSeek-V3, Qwen3-FP8): `NAME` in float8_e4m3fn, and `NAME_scale_inv` with one factor for each
  block of its rows and columns.
- MXFP4 (gpt-oss): `NAME_blocks` with two numbers of four bits in each byte, 32 of which share a power of two in
  `NAME_scales` (Open Compute Project, OCP Microscaling Formats, version 1.0). The stored rows of an expert are its
  columns.
"""

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from tpujob_trainer.model.weights.safetensors import SafetensorsFolder, Stored

_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
_FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=np.float32)
_BIAS = 127
"""Bias of the exponents of MXFP4's scales."""


def problem_with_quantization(given: Any) -> str | None:
    """Why weights with this `quantization_config` cannot be read; None: they can."""
    if not isinstance(given, Mapping):
        return f"quantization_config is {given!r}, not a mapping"
    method, block = given.get("quant_method"), given.get("weight_block_size")
    if method == "mxfp4":
        return None
    if method != "fp8":
        return (
            f"the weights are quantized ({method}), and only fp8 with weight_block_size and mxfp4 are read; take the "
            "folder with bfloat16 weights"
        )
    if not isinstance(block, list) or len(block) != 2 or not all(type(size) is int and size > 0 for size in block):
        return f"the weights are quantized (fp8) with weight_block_size {block!r}; two whole numbers are read"
    if given.get("fmt", "e4m3") != "e4m3":
        return f"the weights are quantized (fp8) as {given['fmt']!r}; only 'e4m3' is read"
    return None


class DequantizedFolder(SafetensorsFolder):
    """A folder whose narrow tensors are read as bfloat16, under the names that the wide ones would have."""

    def __init__(self, folder: SafetensorsFolder, quantization: Mapping[str, Any]) -> None:
        """Finds the narrow tensors; `quantization` is one without a `problem_with_quantization`."""
        self._root, self._field = folder._root, folder._field  # noqa: SLF001 - of the same class
        self.tensors, self.unread = dict(folder.tensors), folder.unread
        self._blocks: tuple[int, int] = tuple(quantization.get("weight_block_size") or (1, 1))
        self._narrow: dict[str, str] = {}
        for name, stored in folder.tensors.items():
            if name.endswith("_scale_inv"):
                wide = name.removesuffix("_scale_inv")
                self._add(wide, "fp8", folder.tensors.get(wide), name)
            elif name.endswith("_blocks"):
                self._add(name.removesuffix("_blocks"), "mxfp4", stored, name)

    def _add(self, name: str, kind: str, stored: Stored | None, of: str) -> None:
        if stored is None:
            self._wrong(f"{of!r} has no tensor {name!r} beside it; copy the folder again")
        shape = stored.shape
        if kind == "fp8":
            expected = tuple(-(-size // block) for size, block in zip(shape, self._blocks, strict=False))
            self.require(of, expected)
        else:
            self.require(f"{name}_scales", shape[:3])
            shape = (shape[0], shape[2] * shape[3] * 2, shape[1])
        self._narrow[name] = kind
        self.tensors[name] = Stored(stored.file, _BFLOAT16, shape, stored.begin)

    def read(self, name: str, first: int, stop: int) -> np.ndarray:
        """Rows [first, stop) of a tensor."""
        kind = self._narrow.get(name)
        if kind == "fp8":
            return self._fp8(name, first, stop)
        return super().read(name, first, stop) if kind is None else self._mxfp4(name, first, stop)

    def _fp8(self, name: str, first: int, stop: int) -> np.ndarray:
        rows, columns = self._blocks
        stored = self.tensors[name]
        narrow = self._read(
            Stored(stored.file, np.dtype(ml_dtypes.float8_e4m3fn), stored.shape, stored.begin), first, stop
        )
        scales = super().read(f"{name}_scale_inv", first // rows, -(-stop // rows)).astype(np.float32)
        tall = np.repeat(scales, rows, axis=0)[first % rows :][: stop - first]
        return (narrow.astype(np.float32) * np.repeat(tall, columns, axis=1)[:, : stored.shape[1]]).astype(_BFLOAT16)

    def _mxfp4(self, name: str, first: int, stop: int) -> np.ndarray:
        packed = super().read(f"{name}_blocks", first, stop)
        exponents = super().read(f"{name}_scales", first, stop).astype(np.int32) - _BIAS
        pairs = np.stack([_FP4[packed & 15], _FP4[packed >> 4]], axis=-1)
        wide = np.ldexp(pairs.reshape(*packed.shape[:3], -1), exponents[..., None])
        return wide.reshape(*packed.shape[:2], -1).swapaxes(1, 2).astype(_BFLOAT16)

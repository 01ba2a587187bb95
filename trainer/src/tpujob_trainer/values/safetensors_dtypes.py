"""Names of number types in safetensors files."""

from collections.abc import Mapping

SAFETENSORS_DTYPES: Mapping[str, str] = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3",
    "int8": "I8", "int32": "I32", "int64": "I64", "uint8": "U8",
}  # fmt: skip
"""Keys are the names in numpy and ml_dtypes (huggingface/safetensors:safetensors/src/tensor.rs)."""
NUMPY_NAMES: Mapping[str, str] = {code: name for name, code in SAFETENSORS_DTYPES.items()}
"""The inverse mapping."""

"""For programs of tests on CPUs: compiled fast, not well. The models are tiny: most of the time would go into it.

TESTS_CPU_ISA=SSE4_2 (or AVX, AVX2, AVX512, …) compiles for processors that have no more than that: sums are made in
another order, and roundings fall on another side. What is claimed of numbers holds on each of them.
"""

import os

XLA_FLAGS = (
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true --xla_cpu_emitter_verification_level=0"
    " --xla_cpu_parallel_codegen_split_count=1"
)
if _isa := os.environ.get("TESTS_CPU_ISA"):
    XLA_FLAGS += f" --xla_cpu_max_isa={_isa}"

"""For programs of tests on CPUs: compiled fast, not well. The models are tiny: most of the time would go into it."""

XLA_FLAGS = (
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true --xla_cpu_emitter_verification_level=0"
)

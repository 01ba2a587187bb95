"""The true step compiled for a TPU topology on a machine without TPUs: does it fit, and what does it exchange.

- `chips`: Memory and rates of each TPU generation, as the compiler counts devices.
- `collectives`: Exchanges between devices in a compiled program: kinds, axes, bytes.
- `program`: Compiles the step of a configuration, and reads memory, exchanges and ideal time off it.
- `subprocess`: The same in a process of its own, with a time limit.
"""

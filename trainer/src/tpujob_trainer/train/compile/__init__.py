"""The true step compiled for a TPU topology on a machine without TPUs: does it fit, and what does it exchange.

- `changes`: Single changes to a configuration: the first that makes a step fit, and which of a handful is fastest.
- `collectives`: Exchanges between devices in a compiled program: kinds, axes, bytes.
- `hlo`: The text of a compiled program: its computations, and every line as often as it runs.
- `matrix_products`: Operations of the matrix products in a compiled program, as often as they run.
- `program`: Compiles the step of a configuration, and reads memory, exchanges and ideal time off it.
- `subprocess`: The same in a process of its own, with a time limit.
"""

"""The start and end of every task and every loop of the SDK: the processes, the report, data and checkpoints."""

"""What every task and every loop of the SDK starts and ends with: the processes, the report, data and checkpoints."""

"""How a process ends: stop requests, deadlines, termination messages, stack traces.

- `process_exit`: How a process ends: heard in every phase, in time, and with the cause in one line.
- `stack_traces`: What the threads of this process are doing.
- `stop_request`: Whether this process is asked to stop, and how long it still has.
- `watchdog`: Notices that a run has stopped making progress, and ends it with the stacks of all threads.
"""

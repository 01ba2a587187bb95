"""How a process ends: stop requests, deadlines, termination messages, stack traces."""

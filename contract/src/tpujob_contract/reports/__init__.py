"""How a process reports what it does and how it ended: reports, termination messages, attempts in place."""

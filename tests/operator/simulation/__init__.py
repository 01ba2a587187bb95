"""The whole controller against an API server in memory, in virtual time: thousands of bad days in a minute.

What is real: list and watch, cache, queue, reconcile, decisions, writes with their preconditions. What is played: the
API server's store (resource versions, uids, watches that lag and are forgotten), JobSet and its pods, people, faults.
"""

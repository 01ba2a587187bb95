"""Runs a job on this machine: every pod of its JobSet becomes a process.

Decided in `plan` (which processes, with which environment) and `outcome` (what their endings mean); done in
`supervisor` (starts, watches, ends), `reports` (asks the trainer how it is) and `display` (tells the person).
"""

"""Starts the launcher, which is a distribution of its own: a process beside this package, never an import of it."""

import runpy

runpy.run_module("tpujob_launcher", run_name="__main__", alter_sys=True)

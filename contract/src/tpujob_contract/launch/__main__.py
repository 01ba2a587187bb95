"""Starts the launcher, a separate distribution, which this package does not import."""

import runpy

runpy.run_module("tpujob_launcher", run_name="__main__", alter_sys=True)

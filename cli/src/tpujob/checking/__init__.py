"""Size, cost and warnings for a job before it runs: `tpujob check`."""

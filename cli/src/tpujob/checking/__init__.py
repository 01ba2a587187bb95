"""Size, cost and doubts of a job before it runs: `tpujob check`."""

"""What a job comes to before it runs: `tpujob check`."""

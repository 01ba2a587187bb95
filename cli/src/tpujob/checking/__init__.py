"""What a job comes to before it runs: `tpujob check`.

- `compiled`: What a job's step comes to, compiled for its slices: `tpujob check --compile` and `--suggest`.
- `forecast`: What a job will read, write and cost: the trainer's forecast, started as a process, with a person's
  prices.
- `summary`: What a job asks for and comes to, by arithmetic: before anything is booked.
"""

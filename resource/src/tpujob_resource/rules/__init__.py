"""What is refused or warned of in a job: rules between fields, limits, the `trainer` block."""

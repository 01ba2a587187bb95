"""What a job needs next: checks of an observation, in the order of `decide.chain`."""

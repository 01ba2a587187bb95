"""The tasks of the trainer, a module for each, and the parts that they assemble."""

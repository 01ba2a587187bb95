"""The contents of a checkpoint directory."""

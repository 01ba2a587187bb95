"""What lies in a checkpoint directory."""

"""Who holds the TPU of this machine, and who may open it."""

"""The TPU of this machine: which process holds it, and which users may open it."""

"""The true step compiled for a TPU topology on a machine without TPUs: does it fit, and what does it exchange."""

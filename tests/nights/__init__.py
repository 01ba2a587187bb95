"""Nights that nobody wrote: random jobs and random blows against a real control plane, and what must hold throughout."""

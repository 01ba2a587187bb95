"""Weights in Hugging Face's format: config.json and safetensors, to and from arrays on many devices."""

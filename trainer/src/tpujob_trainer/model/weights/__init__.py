"""Weights as Hugging Face has them: config.json and safetensors in and out of arrays that lie on many devices."""

"""Weights as Hugging Face has them: config.json and safetensors in and out of arrays that lie on many devices.

- `adapter`: Adapters in the layout of PEFT: adapter_config.json and adapter_model.safetensors.
- `companions`: The small files beside a model's weights: its config.json, how it generates, its tokenizer and chat
  template.
- `config_json`: config.json to and from the shape of a decoder.
- `export`: A model's weights as config.json and safetensors, written by all processes.
- `family_configs`: What the config.json of each family may hold, and what transformers takes where a key is left out.
- `load`: Weights from safetensors, each process reading its part of the bytes.
- `names`: Which tensor of a Hugging Face model each of our weights is, one table for all families.
- `safetensors`: Files of safetensors, read by ranges of bytes and written tensor by tensor.
- `verified_export`: Whether transformers computes from an exported folder what the trainer computes from it.
"""

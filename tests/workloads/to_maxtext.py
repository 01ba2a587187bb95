"""MaxText's own converter of weights, for a model of a published architecture and other dimensions.

    PYTHON to_maxtext.py FOLDER [arguments of maxtext.checkpoint_conversion.to_maxtext]

Its table of dimensions is that of published models; those of config.json in the folder take their place.
"""

import runpy
import sys

MODEL = "llama3.1-8b"


def main() -> None:
    from maxtext.checkpoint_conversion.utils import hf_model_configs  # type: ignore[import-not-found]
    from transformers import AutoConfig

    hf_model_configs.HF_MODEL_CONFIGS[MODEL] = AutoConfig.from_pretrained(sys.argv.pop(1))
    runpy.run_module("maxtext.checkpoint_conversion.to_maxtext", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()

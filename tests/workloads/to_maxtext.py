"""MaxText's own converter of weights, for a model of a published architecture and other dimensions.

    PYTHON to_maxtext.py FOLDER [arguments of maxtext.checkpoint_conversion.to_maxtext]

Its table of dimensions is that of published models; those of config.json in the folder take their place.
"""

import runpy
import sys


def main() -> None:
    from maxtext.checkpoint_conversion.utils import hf_model_configs
    from transformers import AutoConfig

    folder = sys.argv.pop(1)
    model = next(each.partition("=")[2] for each in sys.argv if each.startswith("model_name="))
    hf_model_configs.HF_MODEL_CONFIGS[model] = AutoConfig.from_pretrained(folder)
    runpy.run_module("maxtext.checkpoint_conversion.to_maxtext", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()

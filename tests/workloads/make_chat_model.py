"""A random model in the shape of HuggingFaceTB/SmolLM2-135M-Instruct, as transformers writes it, with a chat tokenizer.

    python -m tests.workloads.make_chat_model OUT CHATS

Needs torch and transformers. Its tokenizer is trained on the conversations, and smaller than the vocabulary.
"""

import json
import sys
from pathlib import Path

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def main() -> None:
    import tokenizers
    import torch
    import transformers

    out, chats = sys.argv[1:]
    texts = [part["content"] for line in Path(chats).read_text().splitlines() for part in json.loads(line)["messages"]]
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = tokenizers.decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=400, special_tokens=special, initial_alphabet=alphabet)
    model.train_from_iterator(texts, trainer)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=model, bos_token="<|im_start|>", eos_token="<|im_end|>", pad_token="<|im_end|>"
    )
    tokenizer.chat_template = CHATML
    tokenizer.save_pretrained(out)
    torch.manual_seed(0)
    # config.json of HuggingFaceTB/SmolLM2-135M-Instruct.
    config = transformers.LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=8192,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        rope_theta=100000.0,
        initializer_range=0.041666666666666664,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
    )
    made = transformers.LlamaForCausalLM(config)
    made.generation_config = transformers.GenerationConfig(bos_token_id=1, eos_token_id=[2], pad_token_id=2)
    # The class has zeros for what it takes for padding; as the first token of a row, their gradient has no bound.
    torch.nn.init.normal_(made.model.embed_tokens.weight.data, std=config.initializer_range)
    made.save_pretrained(out)


if __name__ == "__main__":
    main()

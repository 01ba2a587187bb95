"""What an exported chat model answers, by Hugging Face transformers alone.

python answer.py MODEL QUESTION
"""

import sys

from transformers import AutoModelForCausalLM, AutoTokenizer

folder, question = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder)
asked = tokenizer.apply_chat_template(
    [{"role": "user", "content": question}], add_generation_prompt=True, return_dict=True, return_tensors="pt"
)
written = model.generate(**asked, max_new_tokens=64, do_sample=False)
print(tokenizer.decode(written[0, asked["input_ids"].shape[1] :], skip_special_tokens=True))

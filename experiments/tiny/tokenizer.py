"""Byte-level BPE tokenizers for the tiny models.

Both families share one vocabulary, learnt from generated questions and answers; only their special
tokens and chat templates differ, each after its 7B model. Every byte has a token, so any text can
be encoded and decoded without loss.
"""

from __future__ import annotations

from collections.abc import Iterator

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    pre_tokenizers,
    trainers,
)
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from experiments.tiny.samples import SHORT_TASK, TASKS, TRAIN_SEEDS, make_sample

SYSTEM_MESSAGE = (
    "A chat between a curious human and an artificial intelligence assistant. The assistant gives "
    "helpful, detailed, and polite answers to the human's questions."
)
MERGED_VOCAB = 640  # bytes and merges, without special tokens
EMBEDDINGS = 704  # rows of the embedding: padded beyond the tokenizer, as in both 7B models
CONTEXT = 8192

# Qwen2's split: letters may take one leading character along, digits stand alone.
_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN_SPECIAL = (
    *(
        "<|endoftext|>",
        "<|im_start|>",
        "<|im_end|>",
        "<|vision_start|>",
        "<|vision_end|>",
    ),
    *("<|vision_pad|>", "<|image_pad|>", "<|video_pad|>"),
)
_LLAMA_SPECIAL = ("<unk>", "<s>", "</s>")

QWEN_TEMPLATE = (
    "{% for message in messages %}"
    "{% if loop.first and message['role'] != 'system' %}"
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n{% endif %}"
    "<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for content in message['content'] %}"
    "{% if content['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif 'text' in content %}{{ content['text'] }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAVA_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] != 'system' %}{{ message['role'].upper() + ': ' }}{% endif %}"
    "{% if message['content'] is string %}{{ message['content'] + ' ' }}"
    "{% else %}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'image') %}"
    "{{ '<image>\n' }}{% endfor %}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}"
    "{{ content['text'] + ' ' }}{% endfor %}"
    "{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"
)


def _corpus(per_task: int = 400) -> Iterator[str]:
    """Questions and answers of the first training samples, plus the words of the templates."""
    for task in (*TASKS, SHORT_TASK):
        for seed in range(TRAIN_SEEDS, TRAIN_SEEDS + per_task):
            for turn in make_sample(task, seed).turns:
                yield turn.question
                yield turn.answer.text
                yield " " + turn.answer.text  # how a LLaVA answer begins
    for _ in range(per_task):
        yield SYSTEM_MESSAGE
        yield "system\nYou are a helpful assistant."
        yield "user\n"
        yield "assistant\n"
        yield "USER: \n"
        yield " USER: question ASSISTANT:"


def _train_bpe(special: tuple[str, ...]) -> Tokenizer:
    """Byte-level BPE whose `special` tokens come first."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=MERGED_VOCAB + len(special),
        special_tokens=list(special),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_corpus(), trainer)
    return tokenizer


def _added(names: tuple[str, ...]) -> list[AddedToken]:
    return [AddedToken(name, special=True, normalized=False) for name in names]


def qwen_tokenizer() -> PreTrainedTokenizerFast:
    """Tokenizer with Qwen2.5-VL's special tokens, after the merges as in the 7B one."""
    core = _train_bpe(())
    core.add_special_tokens(_added(_QWEN_SPECIAL))
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
        chat_template=QWEN_TEMPLATE,
    )


def llava_tokenizer() -> PreTrainedTokenizerFast:
    """Tokenizer with Llama's special tokens (0, 1, 2), `<s>` put first, then `<image>`, `<pad>`."""
    core = _train_bpe(_LLAMA_SPECIAL)
    core.add_special_tokens(_added(("<image>", "<pad>")))
    core.post_processor = TemplateProcessing(
        single="<s> $A",
        pair="<s> $A <s> $B",
        special_tokens=[("<s>", core.token_to_id("<s>"))],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
        chat_template=LLAVA_TEMPLATE,
    )

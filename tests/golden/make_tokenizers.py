"""Makes two small tokenizer.json, and the results of Hugging Face's tokenizers for some texts. See
README.md.

    /tmp/golden/bin/python tests/golden/make_tokenizers.py

* qwen3_tiny/: byte-level BPE with Qwen's pattern and its chat tokens, 512 tokens.
* gemma3_tiny/: BPE with a space written as "\u2581" and bytes for characters outside the
  vocabulary, as Gemma's and Llama 2's, 512 tokens.

Both are trained on tokenizer_text.py. tokenizer_cases.json, beside each, is a list of
    text, ids (the text alone), with_special_tokens (with the tokenizer's own), decoded (of ids),
    decoded_plain (without special tokens)
"""

import collections
import json
import pathlib

import tokenizer_text
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = pathlib.Path(__file__).parent
VOCABULARY = 512
# Qwen 2's and 3's: contractions, words, single digits, punctuation, line ends, spaces.
QWEN_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN_SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
GEMMA_SPECIAL = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"]


def byte_level():
    """Has its special tokens at the end, like Qwen's: 509 to 511."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(QWEN_PATTERN), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(QWEN_SPECIAL), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(tokenizer_text.LINES, trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in QWEN_SPECIAL])
    return tokenizer


def sentencepiece_like():
    """Has its special tokens first, then the 256 bytes, like Gemma's."""
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    trained = Tokenizer(models.BPE())
    trained.normalizer = normalizers.Replace(" ", "\u2581")
    trained.pre_tokenizer = pre_tokenizers.Split(Regex("(?<=[^\u2581])(?=\u2581)|(?<=\n)|(?=\n)"), behavior="isolated")
    pieces_left = VOCABULARY - len(GEMMA_SPECIAL) - len(byte_tokens)
    # The trainer's choice among equally frequent characters differs from run to run.
    counts = collections.Counter("\n".join(tokenizer_text.LINES).replace(" ", "\u2581"))
    alphabet = sorted(counts, key=lambda character: (-counts[character], character))[:pieces_left // 3]
    trainer = trainers.BpeTrainer(vocab_size=pieces_left, initial_alphabet=alphabet, limit_alphabet=len(alphabet), show_progress=False)
    trained.train_from_iterator(tokenizer_text.LINES, trainer)
    model = json.loads(trained.to_str())["model"]
    pieces = sorted(model["vocab"], key=model["vocab"].get)
    vocabulary = {token: i for i, token in enumerate([*GEMMA_SPECIAL, *byte_tokens, *pieces])}
    merges = [tuple(merge) for merge in model["merges"]]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", behavior="merged_with_previous")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<bos> $A", pair="<bos> $A <bos> $B", special_tokens=[("<bos>", vocabulary["<bos>"])]
    )
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in GEMMA_SPECIAL])
    return tokenizer


def write(tokenizer, folder):
    assert tokenizer.get_vocab_size() == VOCABULARY, tokenizer.get_vocab_size()
    tokenizer.save(str(folder / "tokenizer.json"))
    cases = []
    for text in tokenizer_text.CASES:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        cases.append({
            "text": text,
            "ids": ids,
            "with_special_tokens": tokenizer.encode(text, add_special_tokens=True).ids,
            "decoded": tokenizer.decode(ids, skip_special_tokens=False),
            "decoded_plain": tokenizer.decode(ids, skip_special_tokens=True),
        })
        assert max(ids, default=0) < VOCABULARY
    lines = ",\n ".join(json.dumps(case) for case in cases)
    (folder / "tokenizer_cases.json").write_text(f"[\n {lines}\n]\n")
    changed = sum(case["decoded"] != case["text"] for case in cases)
    used = len({i for case in cases for i in case["ids"]})
    print(f"{folder}: {len(cases)} cases, {changed} do not decode to themselves, {used} different tokens")


if __name__ == "__main__":
    write(byte_level(), HERE / "qwen3_tiny")
    write(sentencepiece_like(), HERE / "gemma3_tiny")

#!/usr/bin/env python3
"""Makes text/: small tokenizers of the kinds of real models, and the results of the package
`tokenizers` with them.

Each kind is trained on a few sentences with the options of the model family in its name, and gets
that family's special tokens.
Run it where `tokenizers` is installed (README.md):  python make_text.py [OUTPUT_FOLDER]
"""
import json
import pathlib
import random
import sys

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

QWEN_WORDS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
              r"|\s*[\r\n]+|\s+(?!\S)|\s+")
LLAMA3_WORDS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
                r"|\s*[\r\n]+|\s+(?!\S)|\s+")

CORPUS = """The pagoda stands on the hill; it's older than the town, and nobody's sure who built it in 1187.
Blocks are shared, pinned, evicted and offloaded. You are a helpful assistant. You'll see, we've been there, I'm sure they'd agree.
What is the capital of France? The capital of France is Paris. 12345 + 678 = 13023, 3.14159, 2^10 = 1024.
Der Turm steht auf dem Hügel. Où est la bibliothèque ? Привет, мир! 你好，世界。 こんにちは世界 안녕하세요 مرحبا بالعالم
for (int i = 0; i < n; ++i) {\n    sum += values[i];\n}\n\n\treturn sum;\n<html><body>&amp;</body></html>
""" * 4

TEXTS = [
    "", " ", "  ", "\n", "\n\n\n", " \n \t ", "Hello", " Hello", "Hello, world!", "  two  spaces  ", "It's they'RE I'LL we'd",
    "The capital of France is Paris.", "x" * 100, "1234567890 12 3 3.14", "for (int i = 0; i < n; ++i) {\n\tsum += v[i];\n}\n",
    "Привет, мир! 你好，世界。こんにちは", "안녕하세요 مرحبا", "café cafe\u0301 ﬁ ① ½ ²", "\U0001F600 \U0001F469\u200D\U0001F4BB\U0001F1E9\U0001F1EA!",
    "a\u00a0b\u2003c\u3000d\u0085e\u2028f", "tab\there\r\nnewline\r\n\r\n", "trailing   ", "▁under▁score", "<0x41> <s> </s> <unk>",
    "\u0000\u0001\u007f", "İstanbul ſtraße ΑΣ", "\ufeffbom", "\ufffd \ufffe",
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>",
    "<bos><start_of_turn>user\nHi<end_of_turn>\n", "<s>[INST] Hi [/INST] there</s>", "mid<|im_end|>dle <|im_end|> x", "padded  <pad>  x word wordy <mask> swordfish word",
]


def byte_level_trainer(specials):
    return trainers.BpeTrainer(vocab_size=420, special_tokens=specials, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                               show_progress=False)


def train(tokenizer, trainer):
    tokenizer.train_from_iterator(CORPUS.splitlines(keepends=True), trainer)
    return tokenizer


def special(*names):
    return [AddedToken(name, normalized=False, special=True) for name in names]


def qwen():
    tokenizer = Tokenizer(models.BPE(dropout=None, unk_token=None, fuse_unk=False, byte_fallback=False))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN_WORDS), "isolated", invert=False),
                                                       pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    train(tokenizer, byte_level_trainer([]))
    tokenizer.add_special_tokens(special("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    tokenizer.add_tokens([AddedToken("<think>", normalized=False), AddedToken("</think>", normalized=False)])
    return tokenizer


def llama3():
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3_WORDS), "isolated", invert=False),
                                                       pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    train(tokenizer, byte_level_trainer([]))
    tokenizer.add_special_tokens(special("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
                                         "<|eom_id|>", "<|eot_id|>"))
    begin = tokenizer.token_to_id("<|begin_of_text|>")
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|> $B",
                                      special_tokens=[("<|begin_of_text|>", begin)])])
    return tokenizer


def sentencepiece_trainer(specials):
    return trainers.BpeTrainer(vocab_size=640, special_tokens=specials, show_progress=False, limit_alphabet=100,
                               initial_alphabet=["▁", "\n"])


def gemma():
    bytes_ = [f"<0x{i:02X}>" for i in range(256)]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous", invert=False)
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    names = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"]
    # Trained on words, because otherwise the whole text would be one. The written file has the
    # model's own pre-tokenizer.
    words = Tokenizer(models.BPE())
    words.normalizer = tokenizer.normalizer
    words.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    train(words, sentencepiece_trainer(names + bytes_))
    state = json.loads(words.to_str())["model"]
    tokenizer.model = models.BPE(state["vocab"], [tuple(m) for m in state["merges"]], unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    tokenizer.add_special_tokens(special(*names))
    tokenizer.add_tokens([AddedToken("\n\n", normalized=False), AddedToken("▁▁", normalized=False)])
    bos = tokenizer.token_to_id("<bos>")
    tokenizer.post_processor = processors.TemplateProcessing(single="<bos> $A", pair="<bos> $A <bos> $B", special_tokens=[("<bos>", bos)])
    return tokenizer


def mistral():
    """Like Llama 2's too: the normalizer adds the space in front."""
    tokenizer = gemma()
    state = json.loads(tokenizer.to_str())["model"]
    rename = {"<bos>": "<s>", "<eos>": "</s>", "<start_of_turn>": "[INST]", "<end_of_turn>": "[/INST]"}
    vocab = {rename.get(token, token): id for token, id in state["vocab"].items()}
    tokenizer = Tokenizer(models.BPE(vocab, [tuple(m) for m in state["merges"]], unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.add_special_tokens(special("<unk>", "<s>", "</s>", "[INST]", "[/INST]"))
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B",
                                                             special_tokens=[("<s>", tokenizer.token_to_id("<s>"))])
    return tokenizer


def metaspace():
    """Without bytes: a character outside the vocabulary is unknown. Merges are strings, as in older
    files."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase(), normalizers.Strip(),
                                                 normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first"),
                                                       pre_tokenizers.Digits(individual_digits=True)])
    tokenizer.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="first")
    train(tokenizer, sentencepiece_trainer(["<unk>", "<s>", "</s>"]))
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True, normalized=False),
                                  AddedToken("<pad>", lstrip=True, rstrip=True, special=True)])
    tokenizer.add_tokens([AddedToken("word", single_word=True)])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[
        (name, tokenizer.token_to_id(name)) for name in ("<s>", "</s>")])
    return tokenizer


def gpt2():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFD()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=False),
                                                       pre_tokenizers.ByteLevel(add_prefix_space=True)])
    tokenizer.decoder = decoders.ByteLevel()
    train(tokenizer, byte_level_trainer(["<|endoftext|>"]))
    return tokenizer


def split_all():
    """All behaviours of a split, one after the other."""
    tokenizer = gpt2()
    tokenizer.normalizer = normalizers.NFKD()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"\p{P}+"), "merged_with_previous"), pre_tokenizers.Split("e", "merged_with_next"),
        pre_tokenizers.Split(Regex(r"\s"), "contiguous"), pre_tokenizers.Split("0", "removed"),
        pre_tokenizers.Split("i", "isolated"),
        pre_tokenizers.Split(Regex("[^z]+"), "removed", invert=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    return tokenizer


def random_texts(count):
    draw = random.Random(7)
    parts = list("abcdefghijklmnopqrstuvwxyzABCXYZ0123456789 \n\t.,;:!?'\"-_/<>|éßŁжあ漢字한🙂😀▁") + [
        "  ", "'s", "'ll", "\r\n", "<|im_end|>", "<eos>", "</s>", "the ", "ing", " of", "\u0301", "\u00a0", "word", "<mask>"]
    return ["".join(draw.choice(parts) for _ in range(draw.randint(1, 40))) for _ in range(count)]


def cases(tokenizer):
    texts = []
    for text in TEXTS + random_texts(60):
        plain = tokenizer.encode(text, add_special_tokens=False).ids
        whole = tokenizer.encode(text, add_special_tokens=True).ids
        texts.append({"text": text, "ids": plain, "with_special": whole, "decoded": tokenizer.decode(plain),
                      "decoded_with_special": tokenizer.decode(whole, skip_special_tokens=False)})
    draw = random.Random(11)
    size = tokenizer.get_vocab_size(with_added_tokens=True)
    answers = []
    for _ in range(40):
        ids = [draw.randrange(size) for _ in range(draw.randint(1, 12))]
        answers.append({"ids": ids, "decoded": tokenizer.decode(ids)})
    return {"texts": texts, "answers": answers}


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "text")
    for make in (qwen, llama3, gemma, mistral, metaspace, gpt2, split_all):
        tokenizer = make()
        out = folder / make.__name__
        out.mkdir(parents=True, exist_ok=True)
        state = json.loads(tokenizer.to_str())
        if make is metaspace:
            state["model"]["merges"] = [" ".join(merge) for merge in state["model"]["merges"]]
        text = json.dumps(state, ensure_ascii=False, separators=(",", ":"))
        (out / "tokenizer.json").write_text(text + "\n")
        result = cases(Tokenizer.from_str(text))
        result["tokenizers"] = tokenizers.__version__
        (out / "cases.json").write_text(json.dumps(result, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()

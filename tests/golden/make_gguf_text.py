#!/usr/bin/env python3
"""Makes text_gguf/: small vocabularies in GGUF files, and llama.cpp's ids for some texts.

    /tmp/golden/bin/pip install gguf tokenizers llama-cpp-python
    /tmp/golden/bin/python tests/golden/make_gguf_text.py [OUTPUT_FOLDER]

* bytes.gguf: byte-level BPE ("gpt2") with the pre-tokenizer of Llama 3.
* spaces.gguf: SentencePiece's BPE with scores and byte tokens ("llama").
* gemma4.gguf: BPE over characters with visible spaces and byte tokens ("gemma4").
* KIND.json: texts with the ids, alone and with the special tokens around them, and ids with the
  text of their tokens.
* words.json: the ids of texts with bytes.gguf, if tokenizer.ggml.pre has another name. Names with
  the same results are together. "sarvam-moe" has those with gemma4.gguf, as model "gpt2".

Merges are learnt from whole lines, so that they cross words: where a text is cut shows in its ids.
"""
import collections
import ctypes
import json
import pathlib
import random
import re
import sys
import tempfile

import gguf
import llama_cpp
from make_text import CORPUS, TEXTS, random_texts

WORDS = [
    "It's they'RE I'LL we'd he'S don't 'tis ''s x'y 'Ve", "HelloWorld helloWORLD HTTPServer aB Ab ÉcoleÉté straßeÄ fooBar'S FOO'LL",
    "1 12 123 1234 12345 123456 1234567 1,234,567.89 ٣٤٥٦ Ⅷ²½ a1b22c333d4444", " a  b   c    d \t e\n\nf\r\n\r\n g \n h  \n", "trailing   ", "   leading",
    "\n\n\n\t\t\n x", "你好，世界。　全角　空格！こんにちは カタカナ 안녕하세요 ㄱㄴ", "क्या हाल है? สวัสดีครับ مرحبا بالعالم، كيف؟ ខ្មែរ", "e\u0301a\u0308 cafe\u0301 z\u0300z \u0301x",
    "a\u00a0b\u2003c\u3000d\u0085e\u2028f \u00a0 g\u1680h", "!!! ... ?! ((x)) [y] {z} a+b=c <d>&e $5 ~`^| €5 £ ©®", "path/to/file.txt\n//comment\n/* x */\r\n#!",
    "😀 👩\u200d💻 🇩🇪! ☃\ufe0f", "_under_score __init__ a_b -x --y", "ªº ǅ ʰ ß ſ İı K Å", "a.b,c;d:e \"quoted\" 'single' “curly” ‘q’…—–", "IMGIMGABZ <sentinel:12> \t    x  y",
    "x = 3;    // four\n\tif (x) {\n\t\treturn 0;\n\t}\n", "Привет, мир! ПРИВЕТ Мир Où est l'Été? L'ÉTÉ", "\u0000\u0001\u007f\ufeff\ufffd", "0x1F 3.14e-10 1_000 v1.2.3 2024-01-31 10:30:59",
    "\u4e00\u9fa5\u9fa6\u3400\uf900\ud7a3\u0800\u07ff\u2fff", "ab\u0e01\u0e33cd \u1000\u1039", "word\n", " ", "", "\n", "a", "12", "\r", " \r\n ", "  \u3000\u3000  ", "é É 'É 's'S",
]
MORE_TEXTS = ["  a    b", "a▁b ▁ c", "▁▁x", "<tool>x</tool> <tool>y", "<|a|><|ab|>", "<|a<|a|>", "x <|end|>  \n y", "ab<|x|>b<|xx|>", "\n\n\n\n", "a\n\n\n\nb\n", "<0x41> <0xE4>",
              "<unk> <s>a</s>", "one<|x|><|x|>two", "[UNUSED]", "日本語 中文 𠀀", "éèê ñ", "Ω≈ç√", "añéb ñ"]


class Reference:
    """llama.cpp with a vocabulary."""

    def __init__(self, path):
        options = llama_cpp.llama_model_default_params()
        options.vocab_only = True
        self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), options)
        if not self.model:
            raise ValueError(f"llama.cpp refuses {path}")
        self.vocab = llama_cpp.llama_model_get_vocab(self.model)

    def __del__(self):
        if getattr(self, "model", None):
            llama_cpp.llama_model_free(self.model)

    def encode(self, text, add_special):
        data = text.encode()
        size = len(data) + 16
        ids = (llama_cpp.llama_token * size)()
        count = llama_cpp.llama_tokenize(self.vocab, data, len(data), ids, size, add_special, True)
        assert count >= 0
        return list(ids[:count])

    def decode(self, ids):
        """The text of the tokens, without the space in front that the tokenizer adds."""
        if not self.strips:
            return b"".join(self.piece(token) for token in ids)
        tokens = (llama_cpp.llama_token * len(ids))(*ids)
        text = ctypes.create_string_buffer(len(ids) * 64 + 64)
        count = llama_cpp.llama_detokenize(self.vocab, tokens, len(ids), text, len(text), False, True)
        assert count >= 0
        return text.raw[:count]

    strips = False

    def piece(self, token):
        text = ctypes.create_string_buffer(256)
        count = llama_cpp.llama_token_to_piece(self.vocab, token, text, len(text), 0, True)
        assert count >= 0
        return text.raw[:count]


def learn(lines, count):
    """Merges of the most frequent pairs of symbols. `lines` are lists of symbols."""
    merges = []
    while len(merges) < count:
        pairs = collections.Counter(pair for line in lines for pair in zip(line, line[1:]))
        if not pairs:
            break
        (left, right), seen = max(pairs.items(), key=lambda item: (item[1], item[0]))
        if seen < 2:
            break
        merges.append((left, right))
        for line in lines:
            at = 0
            while at + 1 < len(line):
                if line[at] == left and line[at + 1] == right:
                    line[at:at + 2] = [left + right]
                at += 1
    return merges


def visible_bytes():
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table, following = {byte: chr(byte) for byte in shown}, 256
    for byte in range(256):
        if byte not in table:
            table[byte], following = chr(following), following + 1
    return table


def lines_of_text():
    return [line for line in (CORPUS[:len(CORPUS) // 4] + "\n".join(WORDS * 2)).splitlines(keepends=True) if line]


def write(path, model, tokens, types, **fields):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(8)
    writer.add_block_count(1)
    writer.add_feed_forward_length(8)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model(model)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    for key, value in fields.items():
        getattr(writer, f"add_{key}")(value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
CONTROLS = ["<|begin|>", "<|end|>", "<|a|>", "<|ab|>", "<|x|>", "b<|xx|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"


def write_bytes(path, pre):
    table = visible_bytes()
    merges = learn([[table[byte] for byte in line.encode()] for line in lines_of_text()], 700)
    tokens = [*table.values(), *dict.fromkeys(left + right for left, right in merges)]
    # A merge into no token, and one that starts from it.
    lost = tokens.pop(300)
    types = [NORMAL] * len(tokens)
    for names, kind in ((CONTROLS, CONTROL), (["<tool>", "</tool>", "  ", "    ", "ñé"], USER), (["[UNUSED]"], UNUSED)):
        tokens += names
        types += [kind] * len(names)
    assert any(left == lost or right == lost for left, right in merges) or lost
    write(path, "gpt2", tokens, types, tokenizer_pre=pre, token_merges=[f"{left} {right}" for left, right in merges],
          bos_token_id=tokens.index("<|begin|>"), eos_token_id=tokens.index("<|end|>"), chat_template=TEMPLATE)


def spaced_lines():
    return [list(line.replace(" ", "▁")) for line in lines_of_text()]


def write_spaces(path):
    lines = [re.findall("▁*[^▁]*", "".join(line)) for line in spaced_lines()]
    merges = learn([list(word) for line in lines for word in line if word], 350)
    characters = collections.Counter(character for line in spaced_lines() for character in line if character != "\n").most_common(90)
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    types = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256
    scores = [0.0] * len(tokens)
    words = dict.fromkeys(left + right for left, right in merges)
    for at, word in enumerate(words):
        tokens.append(word)
        types.append(NORMAL)
        scores.append(-float(at // 2))  # Some are equal.
    for character, _ in characters:
        if character in words:
            continue
        tokens.append(character)
        types.append(NORMAL)
        scores.append(-1000.0 - len(tokens))
    for names, kind in ((CONTROLS, CONTROL), (["<tool>", "</tool>", "\n\n", "▁▁"], USER), (["[UNUSED]"], UNUSED)):
        for name in names:
            if name in tokens:
                types[tokens.index(name)] = kind
                continue
            tokens.append(name)
            types.append(kind)
            scores.append(0.0)
    write(path, "llama", tokens, types, token_scores=scores, bos_token_id=1, eos_token_id=2, unk_token_id=0, add_bos_token=True,
          add_eos_token=True, add_space_prefix=True, chat_template=TEMPLATE)


def write_gemma4(path, model="gemma4", **fields):
    lines = [re.findall("[^\n]+|\n+", "".join(line)) for line in spaced_lines()]
    merges = learn([list(part) for line in lines for part in line], 350)
    characters = [character for character, _ in collections.Counter(c for line in spaced_lines() for c in line).most_common(90)]
    names = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"]
    tokens = [*names, *(f"<0x{byte:02X}>" for byte in range(256))]
    types = [CONTROL] * 3 + [UNKNOWN] + [CONTROL] * 2 + [BYTE] * 256
    for token in dict.fromkeys([*characters, *(left + right for left, right in merges), "\n\n", "\n\n\n"]):
        tokens.append(token)
        types.append(NORMAL)
    for name in ("<tool>", "</tool>", "<|a|>", "<|ab|>", "<|x|>"):
        tokens.append(name)
        types.append(USER)
    write(path, model, tokens, types, token_scores=[0.0] * len(tokens), token_merges=[f"{left} {right}" for left, right in merges],
          bos_token_id=2, eos_token_id=1, unk_token_id=3, add_bos_token=True, add_space_prefix=False, **fields)


def cases(reference, size):
    texts = []
    for text in [*TEXTS, *WORDS, *MORE_TEXTS, *random_texts(60)]:
        ids = reference.encode(text, False)
        try:
            decoded = reference.decode(ids).decode()
        except UnicodeDecodeError:
            decoded = None
        texts.append({"text": text, "ids": ids, "with_special": reference.encode(text, True), "decoded": decoded})
    draw = random.Random(11)
    answers = []
    while len(answers) < 40:
        ids = [draw.randrange(size) for _ in range(draw.randint(1, 6))]
        try:
            answers.append({"ids": ids, "decoded": reference.decode(ids).decode()})
        except UnicodeDecodeError:
            pass
    return {"texts": texts, "answers": answers}


def pre_tokenizer_names():
    """The names that the engine knows: those in the source."""
    source = (pathlib.Path(__file__).parents[2] / "engine/text/tokenizer/gguf_pre_tokenizers.cc").read_text()
    names = [name for names in re.findall(r'add\("([^"]+)"', source) for name in names.split()]
    assert len(names) > 40
    return sorted(set(names) - {"gemma4", "sarvam-moe"})  # These need other vocabularies.


def words():
    results = collections.defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "vocabulary.gguf"
        for name in pre_tokenizer_names():
            write_bytes(path, name)
            reference = Reference(path)
            results[json.dumps([reference.encode(text, False) for text in WORDS])].append(name)
        write_gemma4(path, "gpt2", tokenizer_pre="sarvam-moe")
        sarvam = [Reference(path).encode(text, False) for text in WORDS]
    return {"texts": WORDS, "sarvam-moe": sarvam, "results": [{"names": names, "ids": json.loads(ids)} for ids, names in results.items()]}


def dump(path, value):
    path.write_text(json.dumps(value, separators=(",", ":")) + "\n")


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "text_gguf")
    folder.mkdir(parents=True, exist_ok=True)
    write_bytes(folder / "bytes.gguf", "llama-bpe")
    write_spaces(folder / "spaces.gguf")
    write_gemma4(folder / "gemma4.gguf")
    for kind in ("bytes", "spaces", "gemma4"):
        reference = Reference(folder / f"{kind}.gguf")
        reference.strips = kind == "spaces"
        dump(folder / f"{kind}.json", cases(reference, llama_cpp.llama_vocab_n_tokens(reference.vocab)))
    dump(folder / "words.json", words())


if __name__ == "__main__":
    main()

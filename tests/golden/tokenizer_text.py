"""The training text of the golden tests' tokenizers, and the texts that test them."""

LINES = """
A block table tells which slots of the pool hold the keys and values of a sequence. The cache keeps them after the request.
The next request with the same prefix finds them in the tree, takes a reference, and computes what is left of its prompt.
When there is no room, the least recently used block goes first; the priority of a block is a number from 0 to 100.
It's what we've built; they're blocks, and I'll say that we'd rather not lose them. Don't you think? You're right, she isn't.
The quick brown fox jumps over the lazy dog. The five boxing wizards jump quickly. Pack my box with five dozen liquor jugs.
In 2024 there were 365 days and 12 months; in 1999, 10,000 people wrote 3.14159 and 2.71828 on 42 walls. Total: 1,234,567.
def attend(query, key, value):
    scores = query @ key.T / sqrt(head_dim)
    return softmax(scores) @ value
for (int i = 0; i < count; ++i) { sum += values[i]; }  // The sum of all values.
<|user|> What is the capital of France? The capital of France is Paris. And of Germany? The capital of Germany is Berlin.
Ein Block hat 32 Marken; die Größe ist überall gleich. Müßig wäre es, über weiße Füße zu grübeln. Schöne Grüße aus Köln.
Le café est très bon, n'est-ce pas? Où êtes-vous allés hier? Ça va bien, merci; à bientôt. L'été dernier, nous étions là.
El niño comió una piñata. ¿Dónde está la biblioteca? ¡Qué día más bonito! Mañana será otro día.
Быстрая лиса прыгает через ленивую собаку. Память делится на блоки, и каждый блок хранит ключи и значения.
敏捷的棕色狐狸跳过了懒狗。内存被分成块，每个块保存键和值。今天天气很好，我们去公园散步。
素早い茶色の狐がのろまな犬を飛び越えた。メモリはブロックに分けられます。今日は天気がいいですね。
The cache, the cache, the cache; the block, the block, the block; the token, the token, the token: tokens in blocks in the cache.
Hello, world! Hello, there! How are you today? I am fine, thank you, and you? Good morning, good evening, good night.
\ta tab, two  spaces, three   spaces, four    spaces; a line
""".strip("\n").split("\n")

CASES = [
    "",
    " ",
    "  ",
    "   ",
    "\n",
    "\n\n",
    " \n",
    "\n ",
    " \n \n  ",
    "\t",
    "\t\tx",
    "\r\n",
    "a\r\nb\r\n",
    "a",
    " a",
    "a ",
    "  a",
    "  a  b   c    ",
    "Hello, world!",
    "hello world",
    "HELLO WORLD",
    " Hello",
    "The cache keeps the blocks of a sequence.",
    "The capital of France is Paris.\nThe capital of Germany is",
    "It's what we've built, they're here, I'll go, we'd stay, don't, I'm",
    "IT'S WE'VE THEY'RE I'LL WE'D DON'T I'M",
    "it\u2019s a typographic apostrophe",
    "'s't're",
    "rock'n'roll 'quoted'",
    "0",
    "42",
    "3.14159",
    "1,234,567 and 2024-12-31",
    "x1y2z3",
    "\u0664\u0662 and \u00bd and \u2167 and x\u00b2",
    "!!!",
    "...",
    "?!?! (what) [is] {this}",
    "a+b=c; d-e*f/g%h",
    "for (int i = 0; i < 10; ++i) { sum += values[i]; }\n",
    "def f(x):\n    return x + 1\n\n\nprint(f(2))\n",
    "https://example.org/a?b=c&d=e#f",
    "user@example.org",
    "C:\\path\\to\\file",
    "caf\u00e9 na\u00efve \u00fcber Stra\u00dfe",
    "cafe\u0301 n\u0303 A\u030a \u1100\u1161\u11a8",  # Composed by NFC.
    "\u212b \u2126 \ufb01 \u2460",
    "\u00bfD\u00f3nde est\u00e1? \u00a1Aqu\u00ed!",
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440!",
    "\u4f60\u597d\uff0c\u4e16\u754c\u3002\u5185\u5b58\u88ab\u5206\u6210\u5757",
    "\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8\u3067\u3059\u3002",
    "\ud55c\uad6d\uc5b4 \ud14d\uc2a4\ud2b8",
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645",
    "\u05e9\u05dc\u05d5\u05dd",
    "\u0928\u092e\u0938\u094d\u0924\u0947",
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
    "\U0001f600",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \U0001f44d\U0001f3fd",
    "a\U0001f600b \u2764\ufe0f",
    "\U00010348 \U0001d573",
    "\u00a0non-breaking\u2003em\u3000wide",
    "zero\u200bwidth\ufeffmark",
    "\u2028line\u2029separators\u0085next",
    "\x00\x01\x7f",
    "\u2581already\u2581marked \u2581",
    "<0x41> is no byte",
    "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|><|im_start|>",
    " <|im_end|> ",
    "<|im_start",
    "<|im_end|>x<|endoftext|>",
    "<start_of_turn>user\nHello<end_of_turn>\n<start_of_turn>model\n",
    "<bos>text<eos>",
    "<unk><pad>",
    "the the the the the the the the",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "supercalifragilisticexpialidocious",
    "ends with spaces   ",
    "ends with lines\n\n\n",
    "\n\n\nbegins with lines",
    "tabs\tand  spaces \t mixed\n\t\n",
    "\u01c5 \u02b0 \u00aa \u0345",  # Title case, modifier letters, a mark that is a letter to some.
    "x\u0301\u0302\u0303",
    "\u0130stanbul \u0131 \u017f K",  # Case folding: the long s and the Kelvin sign.
    "we\u2019\u017f don'\u017f '\u017f",
]

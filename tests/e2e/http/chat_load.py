"""Engines that serve chats without a model: prompts share system prompts, histories come back, and
sequences run for a while."""

import random
import threading

from pagoda_client import Client, OperationError

SYSTEM_TOKENS = (512, 384, 256, 128)
SYSTEM_WEIGHTS = (8, 4, 2, 1)
QUESTION_TOKENS = (20, 120)
ANSWER_TOKENS = 24
RUNNING = 6  # The most sequences that an engine runs at once.
VOCABULARY = 32000


def system_prompts(seed):
    chance = random.Random(seed)
    return [[chance.randrange(VOCABULARY) for _ in range(count)] for count in SYSTEM_TOKENS]


class Engine(threading.Thread):
    """One session; each engine draws its own chats, and all draw from the same system prompts."""

    def __init__(self, daemon, name, seed, pause_seconds=0.0):
        super().__init__(daemon=True, name=name)
        self.client = Client(daemon.connect(), name)
        self.chance = random.Random(f"{name} {seed}")
        self.prompts = system_prompts(seed)
        self.pause_seconds = pause_seconds
        self.chats = []     # Histories that can continue.
        self.running = []   # (sequence, tokens).
        self.served = 0
        self.failure = None
        self.stopping = threading.Event()

    def words(self, count):
        return [self.chance.randrange(VOCABULARY) for _ in range(count)]

    def begin(self):
        if self.chats and self.chance.random() < 0.5:
            tokens = self.chats.pop(self.chance.randrange(len(self.chats)))
        else:
            (system,) = self.chance.choices(self.prompts, SYSTEM_WEIGHTS)
            tokens = list(system)
        tokens = tokens + self.words(self.chance.randint(*QUESTION_TOKENS))
        self.served += 1
        try:
            self.client.wait(self.client.add(self.served, tokens).ready_ticket)
        except OperationError as error:
            assert error.reason == "BLOCKS_EXHAUSTED", error
            return
        self.client.commit(self.served, len(tokens))
        self.running.append((self.served, tokens))

    def end(self):
        sequence, tokens = self.running.pop(0)
        answer = self.words(ANSWER_TOKENS)
        try:
            self.client.append(sequence, answer, len(tokens) + len(answer))
            self.chats.append(tokens + answer)
        except OperationError as error:
            assert error.reason == "BLOCKS_EXHAUSTED", error
        self.client.free_sequence(sequence)

    def run(self):
        try:
            while not self.stopping.wait(self.pause_seconds):
                self.begin()
                if len(self.running) > RUNNING:
                    self.end()
        except Exception as failure:  # The test's own thread reports it.
            self.failure = failure

    def stop(self):
        """Ends the load; what runs stays."""
        self.stopping.set()
        self.join(60)
        assert not self.is_alive() and self.failure is None, self.failure

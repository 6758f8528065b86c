"""Where should a prompt run? Asks several daemons who has the longest prefix of it.

    python3 route.py [ENDPOINT...]
"""

import random
import sys
import time

import pagoda


def main() -> None:
    nodes = [pagoda.RouterNode(f"node-{i}", endpoint) for i, endpoint in enumerate(sys.argv[1:] or ["127.0.0.1:7070"])]
    prompt = [random.randrange(1, 30_000) for _ in range(90)]
    with pagoda.Router(nodes, chunk_tokens=16) as router:
        router.wait(10)
        print(f"before: {len(router.find(prompt).nodes)} nodes have a part of the prompt")
        # An engine of the first node computes the prompt's first 50 tokens.
        with pagoda.connect(nodes[0].endpoint, name="engine") as client, client.sequence(prompt[:50]) as sequence:
            sequence.commit(computed=50)
        while not (route := router.find(prompt)).nodes:
            time.sleep(0.005)
        best = route.nodes[0]
        print(f"after: {best.node.name} has {best.tokens} tokens in tier {best.tier.name}")
        print(f"the whole prompt is ready there in {1000 * best.cost:.1f} ms, elsewhere in {1000 * route.other.cost:.1f} ms")


if __name__ == "__main__":
    main()

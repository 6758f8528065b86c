"""A client that writes into its own slots as long as it lives, like an engine that has not heard of
its daemon's end.

    writing_client.py ADDRESS    prints the slots that it writes, once it has begun
"""

import itertools
import sys

import pool_view
from pagoda_client import Client, connect, handles


def main():
    client = Client(connect(sys.argv[1]), "writing")
    kv = pool_view.map_pool(client.pools()[0])
    added = client.add(1, range(900, 912))
    slots = [block.slot_index for block in handles(added.tables[0].blocks)]
    for number in itertools.count():
        for slot in slots:
            kv[slot] = number
        if number == 0:
            print(*slots, flush=True)


if __name__ == "__main__":
    main()

"""The figures of other systems (peers) on this machine's GPU, one JSON object per line, in the form
of gpu_kernels_bench.

    python3 tests/gpu/peers.py [--list]

The peers are PyTorch (scaled_dot_product_attention, flex_attention, varlen_attn with a block table,
a matrix product) and FlashInfer, if they are installed. A missing or failing peer is reported on
standard error and left out. The shapes are those of gpu_kernels_bench. The id of a figure is the id
there, then "@" and the peer. Times are medians over several sets of K and V, cold in L2: of CUDA
graph replays if the peer can be captured, else of single calls. Exit status 77 without PyTorch or a
device.
"""

import inspect
import json
import statistics
import sys

HEAD_DIM = 128
KV_HEADS = 8
COLD_BYTES = 256 << 20
REPETITIONS = 15

# id, sequences, query tokens, context, query heads, tokens per block
DECODE = [(f"gpu_decode_bf16_g{heads // 8}_p{page}_kv{kv}_b{batch}", batch, 1, kv, heads, page)
          for heads in (32, 64) for page in (16, 64) for kv, batch in ((4096, 64), (16384, 16))]
SMALL = [(f"gpu_decode_small_b{batch}_kv{kv}", batch, 1, kv, 32, 16) for batch in (1, 8) for kv in (512, 1024, 4096)]
PREFILL = [("gpu_prefill_bf16_1024_p16", 8, 1024, 1024, 32, 16), ("gpu_prefill_bf16_4096_p16", 4, 4096, 4096, 32, 16),
           ("gpu_prefill_bf16_8192_p16", 2, 8192, 8192, 32, 16), ("gpu_prefill_bf16_16384_p16", 1, 16384, 16384, 32, 16),
           ("gpu_prefill_bf16_append_512_4096_p16", 16, 512, 4096, 32, 16)]


def kv_bytes(case):
    _, batch, _, context, _, _ = case
    return batch * context * KV_HEADS * HEAD_DIM * 2 * 2


def rounds_of(case):
    return max(3, min(64, COLD_BYTES // kv_bytes(case) + 1))


def report(case, peer, seconds):
    """Prints a line: GB/s for decode, microseconds for small batches, TFLOP/s for prefill."""
    name, batch, queries, context, heads, _ = case
    if "small" in name:
        value, unit = seconds * 1e6, "us"
    elif "decode" in name:
        value, unit = (kv_bytes(case) + 4 * batch * heads * HEAD_DIM) / seconds * 1e-9, "GB/s"
    else:
        pairs = queries * (context - (queries - 1) / 2)
        value, unit = 4 * HEAD_DIM * heads * pairs * batch / seconds * 1e-12, "TFLOP/s"
    print(json.dumps({"figure": f"{name}@{peer}", "value": round(value, 3), "unit": unit}), flush=True)


def seconds_of(torch, rounds, call):
    """The median time of call(round), in a graph of all rounds if it can be captured."""
    for i in range(rounds):
        call(i)
    torch.cuda.synchronize()
    replay = None
    try:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for i in range(rounds):
                call(i)
        replay = graph.replay
    except Exception as error:  # Some peers cannot be captured.
        print(f"without a graph: {error}".splitlines()[0], file=sys.stderr)
        torch.cuda.synchronize()

        def replay():
            for i in range(rounds):
                call(i)
    times = []
    for i in range(3 + REPETITIONS):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        replay()
        end.record()
        end.synchronize()
        if i >= 3:
            times.append(start.elapsed_time(end) * 1e-3)
    return statistics.median(times) / rounds


def contiguous(torch, case):
    """Queries, keys and values as [batch][head][token][dim], the last two of each round."""
    _, batch, queries, context, heads, _ = case
    rounds = rounds_of(case)
    make = lambda *shape: torch.randn(*shape, dtype=torch.bfloat16, device="cuda")
    return make(batch, heads, queries, HEAD_DIM), [
        (make(batch, KV_HEADS, context, HEAD_DIM), make(batch, KV_HEADS, context, HEAD_DIM)) for _ in range(rounds)]


def paged(torch, case):
    """Queries [tokens][head][dim]; K and V [page][token][head][dim] of all rounds; each round's
    random tables."""
    _, batch, queries, context, heads, page = case
    rounds, pages = rounds_of(case), context // page
    make = lambda *shape: torch.randn(*shape, dtype=torch.bfloat16, device="cuda")
    tables = torch.randperm(rounds * batch * pages, device="cuda").to(torch.int32).view(rounds, batch, pages)
    return make(batch * queries, heads, HEAD_DIM), make(tables.numel(), page, KV_HEADS, HEAD_DIM), make(
        tables.numel(), page, KV_HEADS, HEAD_DIM), tables


def sdpa(torch, case, backend):
    from torch.nn.attention import sdpa_kernel
    query, sets = contiguous(torch, case)
    causal = case[2] > 1
    if causal and case[2] != case[3]:
        raise ValueError("its causal mask begins at the first key")

    def call(i):
        return torch.nn.functional.scaled_dot_product_attention(query, *sets[i], is_causal=causal, enable_gqa=True)
    with sdpa_kernel(backend):
        return seconds_of(torch, len(sets), call)


def flex(torch, case):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    query, sets = contiguous(torch, case)
    _, batch, queries, context, _, _ = case
    compiled = torch.compile(flex_attention, dynamic=False)
    mask = None
    if queries > 1:
        offset = context - queries
        mask = create_block_mask(lambda b, h, q, k: q + offset >= k, None, None, queries, context, device="cuda")
    return seconds_of(torch, len(sets), lambda i: compiled(query, *sets[i], block_mask=mask, enable_gqa=True))


def varlen(torch, case):
    from torch.nn.attention.varlen import varlen_attn
    names = inspect.signature(varlen_attn).parameters
    if "block_table" not in names:
        raise ValueError(f"it takes no block table: {', '.join(names)}")
    query, keys, values, tables = paged(torch, case)
    _, batch, queries, context, _, _ = case
    starts = torch.arange(batch + 1, device="cuda", dtype=torch.int32) * queries
    key_starts = torch.arange(batch + 1, device="cuda", dtype=torch.int32) * context
    options = {"seqused_k": torch.full((batch,), context, device="cuda", dtype=torch.int32), "enable_gqa": True}
    if "window_size" in names:
        options["window_size"] = (-1, 0)
    elif "is_causal" in names:
        options["is_causal"] = True
    options = {name: value for name, value in options.items() if name in names}
    return seconds_of(torch, len(tables), lambda i: varlen_attn(
        query, keys, values, starts, key_starts, queries, context, block_table=tables[i], **options))


def flashinfer_paged(torch, case, tensor_cores):
    import flashinfer
    query, keys, values, tables = paged(torch, case)
    _, batch, queries, context, heads, page = case
    indptr = torch.arange(batch + 1, device="cuda", dtype=torch.int32) * (context // page)
    last = torch.full((batch,), (context - 1) % page + 1, device="cuda", dtype=torch.int32)
    wrappers = []
    for table in tables:
        workspace = torch.empty(128 << 20, dtype=torch.uint8, device="cuda")
        if queries == 1:
            wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace, "NHD", use_tensor_cores=tensor_cores)
            wrapper.plan(indptr, table.flatten(), last, heads, KV_HEADS, HEAD_DIM, page, q_data_type=torch.bfloat16,
                         kv_data_type=torch.bfloat16)
        else:
            wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(workspace, "NHD")
            starts = torch.arange(batch + 1, device="cuda", dtype=torch.int32) * queries
            wrapper.plan(starts, indptr, table.flatten(), last, heads, KV_HEADS, HEAD_DIM, page, causal=True,
                         q_data_type=torch.bfloat16, kv_data_type=torch.bfloat16)
        wrappers.append(wrapper)
    return seconds_of(torch, len(tables), lambda i: wrappers[i].run(query, (keys, values)))


def matrix_product(torch):
    a, b = (torch.randn(8192, 8192, dtype=torch.bfloat16, device="cuda") for _ in range(2))
    seconds = seconds_of(torch, 3, lambda i: torch.mm(a, b))
    print(json.dumps({"figure": "gpu_matrix_product@torch", "value": round(2 * 8192**3 / seconds * 1e-12, 1),
                      "unit": "TFLOP/s"}), flush=True)


def peers(torch):
    """(name, cases, function that returns the seconds of a case)."""
    every = DECODE + SMALL + PREFILL
    yield "flashinfer", every, lambda case: flashinfer_paged(torch, case, True)
    yield "flashinfer_cuda_cores", DECODE[:4] + SMALL, lambda case: flashinfer_paged(torch, case, False)
    yield "torch_varlen", every, lambda case: varlen(torch, case)
    from torch.nn.attention import SDPBackend
    yield "torch_flash", every, lambda case: sdpa(torch, case, SDPBackend.FLASH_ATTENTION)
    yield "torch_cudnn", every, lambda case: sdpa(torch, case, SDPBackend.CUDNN_ATTENTION)
    yield "torch_flex", DECODE[:1] + SMALL[-1:] + PREFILL[1:2], lambda case: flex(torch, case)


def main():
    if sys.argv[1:] == ["--list"]:
        for case in DECODE + SMALL + PREFILL:
            print(case[0])
        return 0
    try:
        import torch
    except ImportError as error:
        print(f"skipped: {error}")
        return 77
    if not torch.cuda.is_available():
        print("skipped: no device")
        return 77
    matrix_product(torch)
    for name, cases, run in peers(torch):
        for case in cases:
            try:
                report(case, name, run(case))
            except Exception as error:  # A failing peer is reported and left out.
                print(f"{case[0]}@{name}: {type(error).__name__}: {error}".splitlines()[0], file=sys.stderr, flush=True)
                if isinstance(error, ImportError):
                    break
            torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A vLLM engine in its own process. Commands come in as lines of JSON, and answers go out.
VllmProcess starts it."""

import json
import os
import sys
import time

ANSWER = "@@answer "


def answer(**values):
    print(ANSWER + json.dumps(values), flush=True)


def main():
    options = json.loads(sys.argv[1])
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    if options.get("tensor_parallel_size", 1) * options.get("pipeline_parallel_size", 1) > 1:
        os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
    from vllm import LLM, SamplingParams
    from vllm.lora.request import LoRARequest

    llm = LLM(skip_tokenizer_init=True, enforce_eager=True, disable_log_stats=False, **options)
    answer(ready=True)
    for line in sys.stdin:
        command = json.loads(line)
        kind = command.pop("do")
        try:
            if kind == "generate":
                prompts = [{"prompt_token_ids": tokens, **command.get("extra", {})} for tokens in command["prompts"]]
                sampling = SamplingParams(max_tokens=command["max_tokens"], temperature=0, detokenize=False, ignore_eos=True,
                                          logprobs=command.get("logprobs"), extra_args={"kv_transfer_params": command.get("transfer")})
                started = time.monotonic()
                adapter = LoRARequest(command["adapter"]["name"], 1, command["adapter"]["path"]) if command.get("adapter") else None
                outputs = llm.generate(prompts, sampling, use_tqdm=False, lora_request=adapter)
                answer(seconds=time.monotonic() - started, tokens=[list(one.outputs[0].token_ids) for one in outputs],
                       reasons=[one.outputs[0].finish_reason for one in outputs], cached=[one.num_cached_tokens for one in outputs],
                       transfers=[one.kv_transfer_params for one in outputs],
                       logprobs=[{token: one.logprob for token, one in step.items()} for out in outputs for step in out.outputs[0].logprobs or ()])
            elif kind == "reset":
                answer(done=llm.reset_prefix_cache(reset_connector=command.get("connector", False)))
            elif kind == "metrics":
                answer(metrics={metric.name: getattr(metric, "value", None) for metric in llm.get_metrics()})
            else:
                raise ValueError(f"there is no command {kind}")
        except Exception as error:  # The test decides what an error means.
            answer(error=f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()

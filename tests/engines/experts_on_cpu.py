"""PagodaConnector for replicas of a mixture of experts on CPUs. vLLM 0.32 lacks the two collectives
there by which replicas share experts.

vLLM imports a connector's module in each worker (kv_connector_module_path), before the model runs.
"""

import torch
import torch.distributed as dist
from pagoda.vllm import PagodaConnector  # noqa: F401
from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator


def gather(self, given, dim=0, sizes=None):
    """The tensors of all ranks, one after another. `sizes`: rows of each rank; by default as many
    as here."""
    assert dim == 0
    if not isinstance(given, torch.Tensor):
        return [gather(self, one, dim, sizes) for one in given]
    rows = sizes or [given.shape[0]] * self.world_size
    padded = given.new_zeros((max(rows), *given.shape[1:]))
    padded[:given.shape[0]] = given
    parts = [torch.empty_like(padded) for _ in rows]
    dist.all_gather(parts, padded, group=self.device_group)
    return torch.cat([part[:count] for part, count in zip(parts, rows)])


def reduce_and_scatter(self, given, dim=-1, sizes=None):
    """The sum of what all ranks have: of it the rows of this rank."""
    assert dim == 0
    rows = sizes or [given.shape[0] // self.world_size] * self.world_size
    total = given.clone()
    dist.all_reduce(total, group=self.device_group)
    return total.split(rows)[self.rank_in_group].contiguous()


CpuCommunicator.all_gatherv, CpuCommunicator.reduce_scatterv = gather, reduce_and_scatter

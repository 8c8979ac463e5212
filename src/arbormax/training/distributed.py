"""Training in several processes: who starts them, and how they share row-sparse gradients.

V rows of a parameter, R processes.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Sequence
from typing import Any, Literal, get_args

import pytorch_lightning as pl
import torch
from lightning_fabric.plugins.environments.slurm import SLURMEnvironment
from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from pytorch_lightning.strategies import DDPStrategy
from pytorch_lightning.utilities import rank_zero_only
from torch import Tensor, distributed, nn
from torch.multiprocessing.spawn import ProcessRaisedException
from torch.nn.parallel import DistributedDataParallel

StrategyName = Literal["auto", "ddp", "ddp_spawn"]
STRATEGIES: tuple[str, ...] = get_args(StrategyName)
_LIGHTNING = ("pytorch_lightning", "lightning_fabric", "lightning.pytorch")


class Workers(DDPStrategy):
    """Lightning's DDP, in which the parameters that a module names in `row_sparse` are left to `average_rows`."""

    def __init__(self, start_method: Literal["popen", "spawn"], **options: Any) -> None:
        super().__init__(start_method=start_method, **options)
        self.spawns = start_method == "spawn"  # so that the caller's process is none of them

    def setup_environment(self) -> None:
        if self.spawns:  # this process is new, and knows nothing of what the caller silenced
            for name in _LIGHTNING:
                logging.getLogger(name).setLevel(logging.ERROR)
            ignore_advice()
        super().setup_environment()

    def configure_ddp(self) -> None:
        module: Any = self.model
        rows: list[str] = module.row_sparse
        for name in rows:
            distributed.broadcast(module.get_parameter(name).detach(), 0)
        dense = any(p.requires_grad for name, p in module.named_parameters() if name not in rows)
        if dense:  # DDP refuses to have nothing to do
            # Buffers are constants here, some as long as the vocabulary or the tree; DDP would send them in every step.
            constants = [name for name, _ in module.named_buffers()]
            leave_out: Any = DistributedDataParallel._set_params_and_buffers_to_ignore_for_model  # noqa: SLF001
            leave_out(module, rows + constants)
            super().configure_ddp()


def average_rows(parameters: Sequence[nn.Parameter]) -> None:
    """Put the mean over all processes in place of each gradient, of which only the rows that are there travel.

    The cost follows the rows that any process has a gradient on, not V.
    """
    mine = [_rows(parameter) for parameter in parameters]
    ranks, device = distributed.get_world_size(), parameters[0].device
    counts_RP = torch.stack(_gathered(torch.tensor([len(rows) for rows, _ in mine], device=device), ranks)).tolist()
    for place, (parameter, (rows, values)) in enumerate(zip(parameters, mine, strict=True)):
        counts = [counts_P[place] for counts_P in counts_RP]
        parts = [_gathered(_padded(part, max(counts)), ranks) for part in (rows, values)]
        all_rows, all_values = (torch.cat([part[:n] for part, n in zip(of, counts, strict=True)]) for of in parts)
        grad = torch.sparse_coo_tensor(all_rows[None], all_values / ranks, parameter.shape, check_invariants=False)
        parameter.grad = grad.coalesce()


def _rows(parameter: nn.Parameter) -> tuple[Tensor, Tensor]:
    """The rows on which the gradient is, each once, and its values there."""
    grad = parameter.grad
    if grad is None:
        return parameter.new_empty(0, dtype=torch.int64), parameter.detach()[:0]
    grad = grad.coalesce()
    return grad.indices()[0], grad.values()


def _padded(part: Tensor, length: int) -> Tensor:
    return torch.cat([part, part.new_zeros(length - len(part), *part.shape[1:])])


def _gathered(part: Tensor, ranks: int) -> list[Tensor]:
    everyone = [torch.empty_like(part) for _ in range(ranks)]
    distributed.all_gather(everyone, part.contiguous())
    return everyone


def strategy_of(name: StrategyName, nodes: int) -> pl.strategies.Strategy:
    """Who starts the processes: with spawn the caller gets the result, else all of them run the caller's program."""
    if name == "auto":
        outside = TorchElasticEnvironment.detect() or SLURMEnvironment.detect()
        name = "ddp" if nodes > 1 or outside else "ddp_spawn"
    return Workers("popen" if name == "ddp" else "spawn")


def is_first_process() -> bool:
    """Whether this is the process that writes files and reports, of those that run the same program.

    Holds before they are joined, too.
    """
    node = os.environ.get("NODE_RANK", os.environ.get("GROUP_RANK", "0"))
    rank: int = rank_zero_only.rank  # type: ignore[attr-defined]
    return rank == 0 and int(node) == 0


def leave_group() -> None:
    """Part from the other processes, so that what this one measures later is not added up over them."""
    if distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()


def is_lost_connection(error: BaseException) -> bool:
    """Whether this is what a process gets when one that it trains with is gone."""
    if isinstance(error, (distributed.DistBackendError, distributed.DistNetworkError)):
        return True
    if not isinstance(error, (RuntimeError, ProcessRaisedException)):
        return False
    signs = (
        "gloo/transport",
        "Connection closed by peer",
        "Connection reset by peer",
        "DistBackendError",
        "DistNetwork",
    )
    return any(sign in str(error) for sign in signs)


def ignore_advice() -> None:
    """Leave out the warnings that Lightning gives on what is decided here."""
    warnings.filterwarnings("ignore", message=r".*LeafSpec.* is deprecated")
    warnings.filterwarnings("ignore", message=r"It is recommended to use `self.log\(.*sync_dist=True")  # equal on all
    # said of the logs' folder of a run that is resumed; its file was put aside
    warnings.filterwarnings("ignore", message="Experiment logs directory .* exists and is not empty")

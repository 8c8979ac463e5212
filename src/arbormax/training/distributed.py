"""Training in several processes: how they start, share row-sparse gradients, and report a lost process.

V rows of a parameter, R processes, P parameters.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from lightning_fabric.plugins.environments.slurm import SLURMEnvironment
from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from pytorch_lightning.strategies import DDPStrategy
from pytorch_lightning.utilities import rank_zero_only
from torch import Tensor, distributed, nn
from torch.multiprocessing.spawn import ProcessExitedException, ProcessRaisedException
from torch.nn.parallel import DistributedDataParallel

from arbormax.training.errors import WorkerLostError, silence_lightning
from arbormax.training.hardware import Hardware

_LOST_CONNECTION = (  # parts of the errors that the end of another process causes
    "ProcessExitedException",
    "gloo/transport",
    "Connection closed by peer",
    "Connection reset by peer",
    "DistBackendError",
    "DistNetwork",
)


class RowSparseDDPStrategy(DDPStrategy):
    """Lightning's DDP for modules with row-sparse gradients.

    DDP cannot reduce sparse gradients; the parameters in `module.row_sparse` are excluded here and averaged by
    `average_rows`.
    """

    def __init__(self, start_method: Literal["popen", "spawn"], **options: Any) -> None:
        super().__init__(start_method=start_method, **options)
        self.spawns = start_method == "spawn"  # the calling process is then not a worker

    def setup_environment(self) -> None:
        if self.spawns:  # a new process, which does not inherit the caller's filters
            silence_lightning()
        super().setup_environment()

    def configure_ddp(self) -> None:
        module: Any = self.model
        rows: list[str] = module.row_sparse
        for name in rows:
            distributed.broadcast(module.get_parameter(name).detach(), 0)
        dense = any(p.requires_grad for name, p in module.named_parameters() if name not in rows)
        if dense:  # DDP raises without a parameter to reduce
            # Buffers are constants, some as long as the vocabulary or the tree; DDP would send them in every step.
            constants = [name for name, _ in module.named_buffers()]
            # Private, but torch has no public way to exclude parameters and buffers from DDP.
            exclude: Any = DistributedDataParallel._set_params_and_buffers_to_ignore_for_model  # noqa: SLF001
            exclude(module, rows + constants)
            super().configure_ddp()


def average_rows(parameters: Sequence[nn.Parameter]) -> None:
    """Replace each gradient by its mean over all processes; the cost depends on the rows with a gradient, not on V."""
    own = [_rows_and_values(parameter) for parameter in parameters]
    ranks, device = distributed.get_world_size(), parameters[0].device
    counts_RP = torch.stack(_all_gather(torch.tensor([len(rows) for rows, _ in own], device=device), ranks)).tolist()
    for index, (parameter, (rows, values)) in enumerate(zip(parameters, own, strict=True)):
        counts = [counts_P[index] for counts_P in counts_RP]
        parts = [_all_gather(_pad(part, max(counts)), ranks) for part in (rows, values)]
        all_rows, all_values = (torch.cat([part[:n] for part, n in zip(of, counts, strict=True)]) for of in parts)
        grad = torch.sparse_coo_tensor(all_rows[None], all_values / ranks, parameter.shape, check_invariants=False)
        parameter.grad = grad.coalesce()


def _rows_and_values(parameter: nn.Parameter) -> tuple[Tensor, Tensor]:
    """The rows that have a gradient, each once, and the gradient there."""
    grad = parameter.grad
    if grad is None:
        return parameter.new_empty(0, dtype=torch.int64), parameter.detach()[:0]
    grad = grad.coalesce()
    return grad.indices()[0], grad.values()


def _pad(part: Tensor, length: int) -> Tensor:
    return torch.cat([part, part.new_zeros(length - len(part), *part.shape[1:])])


def _all_gather(part: Tensor, ranks: int) -> list[Tensor]:
    gathered = [torch.empty_like(part) for _ in range(ranks)]
    distributed.all_gather(gathered, part.contiguous())
    return gathered


def make_strategy(hardware: Hardware) -> RowSparseDDPStrategy | Literal["auto"]:
    """The strategy for several devices, or Lightning's own for one."""
    if not hardware.several:
        return "auto"
    name = hardware.strategy
    if name == "auto":
        is_launched = TorchElasticEnvironment.detect() or SLURMEnvironment.detect()
        name = "ddp" if hardware.num_nodes > 1 or is_launched else "ddp_spawn"
    return RowSparseDDPStrategy("popen" if name == "ddp" else "spawn")


def is_first_process() -> bool:
    """Whether this process writes files and reports; works before the process group is initialised, too."""
    node = os.environ.get("NODE_RANK", os.environ.get("GROUP_RANK", "0"))
    rank: int = rank_zero_only.rank  # type: ignore[attr-defined]
    return rank == 0 and int(node) == 0


@contextmanager
def report_lost_workers(checkpoints: Path | None, ranks: int) -> Iterator[None]:
    """Raise `WorkerLostError` for the errors that the end of another process causes."""
    try:
        yield
    except (ProcessExitedException, ProcessRaisedException, RuntimeError) as error:
        text = f"{type(error).__name__}: {error}"
        if ranks == 1 or not any(part in text for part in _LOST_CONNECTION):
            raise
        how = f" ({error})" if isinstance(error, ProcessExitedException) else ""
        files = [] if checkpoints is None else sorted(checkpoints.glob("*.ckpt"), key=lambda file: file.stat().st_mtime)
        saved = f"the last saved state is {files[-1]}" if files else "no state was saved"
        raise WorkerLostError(
            f"one of {ranks} processes ended unexpectedly, and the others stopped{how}; {saved}", bool(files)
        ) from error

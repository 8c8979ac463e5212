"""The devices and machines that a training runs on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from pytorch_lightning.accelerators import AcceleratorRegistry

from arbormax.errors import OptionError, check_choice

StrategyName = Literal["auto", "ddp", "ddp_spawn"]


@dataclass(frozen=True)
class Hardware:
    """Where to train. `accelerator` and `devices` are Lightning's; `devices` counts for each of `num_nodes` machines.

    With the strategy `ddp_spawn` the calling process starts the workers and receives the result; with `ddp` every
    process runs the caller's program. `auto` is `ddp` on several machines, under torchrun and under SLURM, and
    `ddp_spawn` otherwise.
    """

    accelerator: str = "auto"
    devices: int | str = 1
    strategy: StrategyName = "auto"
    num_nodes: int = 1

    def __post_init__(self) -> None:
        check_choice("strategy", self.strategy, get_args(StrategyName))
        known = ("auto", "gpu", *AcceleratorRegistry.available_accelerators())
        check_choice("accelerator", self.accelerator, known)
        if self.num_nodes < 1:
            raise OptionError(f"expected at least one machine, found {self.num_nodes}", argument="num_nodes")
        if self.strategy == "ddp_spawn" and self.num_nodes > 1:
            raise OptionError(
                f"ddp_spawn starts processes on one machine, found num_nodes={self.num_nodes}",
                argument="strategy",
                fix={"strategy": "ddp"},
            )

    @property
    def ranks(self) -> int:
        """The number of devices on all machines together."""
        if self.devices in ("auto", "-1", -1):
            per_node = torch.cuda.device_count() if self.accelerator in ("auto", "gpu", "cuda") else 1
        elif isinstance(self.devices, str) and not self.devices.isdigit():
            per_node = self.devices.strip(",").count(",") + 1
        else:
            per_node = int(self.devices)
        return max(per_node, 1) * self.num_nodes

    @property
    def several(self) -> bool:
        """Whether there is more than one device."""
        return self.ranks > 1

    @property
    def first_device(self) -> torch.device:
        """Where to compute before the training starts: the GPU if one process trains on it, else the CPU."""
        is_cuda = self.accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available() and not self.several
        return torch.device("cuda" if is_cuda else "cpu")

    def check(self) -> None:
        """Raise if this machine does not have the devices."""
        has_accelerator = torch.accelerator.is_available()
        if self.accelerator in ("gpu", "cuda") and not has_accelerator:
            raise OptionError(
                f"torch finds no GPU on this machine, found {self.accelerator!r}",
                argument="accelerator",
                fix={"accelerator": "cpu"},
            )
        is_cpu = self.accelerator == "cpu" or (self.accelerator == "auto" and not has_accelerator)
        if is_cpu and self.devices != "auto" and not (str(self.devices).isdigit() and int(self.devices) > 0):
            raise OptionError(
                f"on a CPU, expected a positive number of processes, found {self.devices!r}", argument="devices"
            )


ONE_DEVICE = Hardware()
